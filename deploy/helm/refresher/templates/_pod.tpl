{{/* The hard limit of a refresh, rounded up: refresher/settings.py, HARD_LIMIT_MARGIN_SECONDS. */}}
{{- define "refresher.hardLimitSeconds" -}}
{{- add (ceil .Values.worker.budgetSeconds | int) 15 -}}
{{- end -}}

{{/* A value of the environment. A number that Go would write as 8.388608e+06 is none for the settings. */}}
{{- define "refresher.envValue" -}}
{{- if kindIs "string" . -}}{{- . | quote -}}{{- else -}}{{- toJson . | quote -}}{{- end -}}
{{- end -}}

{{/* A variable from a Secret. Takes (list $ "worker" "NEO4J_PASSWORD"). */}}
{{- define "refresher.secretEnv" -}}
- name: {{ index . 2 }}
  valueFrom:
    secretKeyRef:
      name: {{ include "refresher.secret" (list (index . 0) (index . 1)) }}
      key: {{ index . 2 }}
{{- end -}}

{{- define "refresher.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int .Values.pod.user }}
runAsGroup: {{ int .Values.pod.user }}
fsGroup: {{ int .Values.pod.user }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "refresher.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What all pods have: who they are, where they may run, no token of Kubernetes, and no variables made of Services,
     for one that is called flower would set FLOWER_PORT. */}}
{{- define "refresher.podCommon" -}}
serviceAccountName: {{ include "refresher.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "refresher.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "refresher.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.certificates.secret }}
- name: certificates
  mountPath: /etc/refresher/certificates
  readOnly: true
{{- end }}
{{- end -}}

{{- define "refresher.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 100Mi}  # sockets, and files of metrics of some kilobytes a process
{{- with .Values.certificates.secret }}
- name: certificates
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}
