{{/* Not empty where KEDA has to say to the broker who it is. */}}
{{- define "refresher.scalerSignsIn" -}}
{{- $keda := .Values.autoscaling.keda -}}
{{- if and (eq .Values.autoscaling.kind "keda") $keda.queue.enabled -}}
{{- if or .Values.secrets.scaler (eq .Values.broker.kind "rabbitmq") $keda.queue.redis.password $keda.queue.redis.sentinelPassword $keda.queue.triggerAuthentication -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* What it says, as keys of the Secret: KEDA's names. */}}
{{- define "refresher.scalerSecretKeys" -}}
{{- if eq .Values.broker.kind "rabbitmq" -}}host{{- else -}}
username password{{ if .Values.autoscaling.keda.queue.redis.sentinelMaster }} sentinelUsername sentinelPassword{{ end }}
{{- end -}}
{{- end -}}

{{/* A trigger by the length of a queue. Takes (list $ "misses"). */}}
{{- define "refresher.queueTrigger" -}}
{{- $ := index . 0 -}}
{{- $which := index . 1 -}}
{{- $queue := $.Values.autoscaling.keda.queue -}}
{{- $length := index $queue $which | int | quote -}}
- name: {{ $which }}
  type: {{ ternary "rabbitmq" (ternary "redis-sentinel" "redis" (ne $queue.redis.sentinelMaster "")) (eq $.Values.broker.kind "rabbitmq") }}
  metricType: AverageValue
  metadata:
    {{- if eq $.Values.broker.kind "rabbitmq" }}
    queueName: {{ include "refresher.queue" . | quote }}
    mode: QueueLength
    value: {{ $length }}
    {{- else }}
    {{- with $queue.redis.sentinelMaster }}
    addresses: {{ $queue.redis.address | quote }}
    sentinelMaster: {{ . | quote }}
    {{- else }}
    address: {{ $queue.redis.address | quote }}
    {{- end }}
    databaseIndex: {{ $queue.redis.database | int | quote }}
    enableTLS: {{ $queue.redis.tls | quote }}
    listName: {{ include "refresher.queue" . | quote }}
    listLength: {{ $length }}
    {{- end }}
  {{- if include "refresher.scalerSignsIn" $ }}
  authenticationRef:
    name: {{ default (printf "%s-scaler" (include "refresher.fullname" $)) $queue.triggerAuthentication }}
  {{- end }}
{{- end -}}

{{/* Seconds that a refresh has waited before its load began, of the query that waits longest; 0 while nothing ends. */}}
{{- define "refresher.waitQuery" -}}
{{- $of := printf "{namespace=%q, pod=~%q}" .Release.Namespace (printf "%s-worker-.*" (include "refresher.fullname" .)) -}}
{{- printf "max((sum by (query) (rate(xfetch_refresh_lead_seconds_sum%s[5m])) - sum by (query) (rate(xfetch_refresh_duration_seconds_sum%s[5m]))) / (sum by (query) (rate(xfetch_refresh_lead_seconds_count%s[5m])) > 0)) or vector(0)" $of $of $of -}}
{{- end -}}

{{- define "refresher.scaleDown" -}}
scaleDown:
  stabilizationWindowSeconds: {{ int .Values.autoscaling.scaleDown.stabilizationWindowSeconds }}
  policies:
    - type: Pods
      value: {{ int .Values.autoscaling.scaleDown.podsPerMinute }}
      periodSeconds: 60
{{- end -}}
