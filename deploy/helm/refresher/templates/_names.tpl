{{- define "refresher.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a part, and never changes. Takes (list $ "worker"). */}}
{{- define "refresher.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ default $.Chart.Name $.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Takes (list $ "worker"). */}}
{{- define "refresher.labels" -}}
{{- $ := index . 0 -}}
{{ include "refresher.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "refresher.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "refresher.serviceAccount" -}}
{{- default (ternary (include "refresher.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The Secret of a part: yours, or the one that is made. Takes (list $ "worker"). */}}
{{- define "refresher.secret" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- default (printf "%s-%s" (include "refresher.fullname" $) $part) (index $.Values.secrets $part) -}}
{{- end -}}

{{- define "refresher.queriesConfigMap" -}}
{{- if .Values.queries.existingConfigMap -}}
{{- .Values.queries.existingConfigMap -}}
{{- else if .Values.queries.files -}}
{{- printf "%s-queries" (include "refresher.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The name of a queue, as api_client/config/broker.py has it. Takes (list $ "misses"). */}}
{{- define "refresher.queue" -}}
{{- $ := index . 0 -}}
{{- $kind := ternary "refresh-miss" "refresh" (eq (index . 1) "misses") -}}
{{- printf "%s.%s%s" $.Values.namespace $kind (ternary ".quorum" "" (eq $.Values.broker.kind "rabbitmq")) -}}
{{- end -}}
