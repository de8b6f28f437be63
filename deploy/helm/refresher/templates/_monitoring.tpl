{{/* Takes (list $ part job port path). The alerts and the dashboard know the jobs by these names. */}}
{{- define "refresher.podMonitor" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "refresher.fullname" $ }}-{{ $part }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "refresher.labels" (list $ $part) | nindent 4 }}
    {{- with $.Values.metrics.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "refresher.selector" (list $ $part) | nindent 6 }}
  podMetricsEndpoints:
    - port: {{ index . 3 }}
      path: {{ index . 4 }}
      interval: {{ $.Values.metrics.podMonitor.interval }}
      relabelings:
        - {targetLabel: job, replacement: {{ index . 2 }}}
{{- end -}}
