{{/* No shell: SIGTERM is the worker's own. Without -Q it takes both queues, misses first. */}}
{{- define "refresher.workerArgs" -}}
{{- $queues := list -}}
{{- range .Values.worker.queues -}}{{- $queues = append $queues (include "refresher.queue" (list $ .)) -}}{{- end -}}
- celery
- -A
- refresher
- worker
- --loglevel
- {{ .Values.worker.logLevel }}
- --without-gossip
- --without-mingle
- -n
- refresh@%h
{{- if lt (len $queues) 2 }}
- -Q
- {{ join "," $queues | quote }}
{{- end }}
{{- range .Values.worker.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "refresher.workerEnv" -}}
{{- $worker := .Values.worker -}}
{{ include "refresher.secretEnv" (list . "worker" "CACHE_REDIS_URL") }}
{{ include "refresher.secretEnv" (list . "worker" "CACHE_BROKER_URL") }}
{{ include "refresher.secretEnv" (list . "worker" "NEO4J_PASSWORD") }}
{{ include "refresher.env" (dict
  "CACHE_NAMESPACE" .Values.namespace
  "REFRESHER_QUERIES" (join "," .Values.queries.modules)
  "NEO4J_URI" .Values.graph.uri
  "NEO4J_USER" .Values.graph.user
  "CACHE_XFETCH_WORKERS" $worker.processes
  "CACHE_XFETCH_TIMEOUT" $worker.budgetSeconds
  "CACHE_HEALTH_PORT" $worker.healthPort
  "CACHE_HEALTH_ADDRESS" .Values.pod.listenAddress) }}
{{- if .Values.metrics.enabled }}
{{ include "refresher.env" (dict "CACHE_METRICS_PORT" .Values.metrics.port "CACHE_METRICS_ADDRESS" .Values.pod.listenAddress) }}
{{- end }}
{{- with .Values.graph.database }}
{{ include "refresher.env" (dict "NEO4J_DATABASE" .) }}
{{- end }}
{{- if .Values.feed.enabled }}
{{ include "refresher.env" (dict "CACHE_FEED" true) }}
{{- with .Values.feed.user }}
{{ include "refresher.env" (dict "REFRESHER_FEED_USER" .) }}
{{ include "refresher.secretEnv" (list $ "worker" "REFRESHER_FEED_PASSWORD") }}
{{- end }}
{{- end }}
{{- with .Values.certificates.graphFile }}
{{ include "refresher.env" (dict "NEO4J_CA_CERTS" (printf "/etc/refresher/certificates/%s" .)) }}
{{- end }}
{{- if $worker.env }}
{{ include "refresher.env" $worker.env }}
{{- end }}
{{- with $worker.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "refresher.env" -}}
{{- $lines := list -}}
{{- range $name, $value := . -}}
{{- $lines = append $lines (printf "- name: %s\n  value: %s" $name (include "refresher.envValue" $value)) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
