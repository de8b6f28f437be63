{{- define "refresher.flowerPrefix" -}}
{{- with .Values.flower.urlPrefix | trimAll "/" -}}/{{ . }}{{- end -}}
{{- end -}}

{{- define "refresher.flowerEnv" -}}
{{ include "refresher.secretEnv" (list . "flower" "CACHE_BROKER_URL") }}
{{- if .Values.flower.oauth.provider }}
{{- range list "FLOWER_OAUTH2_KEY" "FLOWER_OAUTH2_SECRET" "FLOWER_OAUTH2_REDIRECT_URI" }}
{{ include "refresher.secretEnv" (list $ "flower" .) }}
{{- end }}
{{ include "refresher.env" (dict "FLOWER_AUTH_PROVIDER" .Values.flower.oauth.provider "FLOWER_AUTH" .Values.flower.oauth.allowed) }}
{{- else }}
{{ include "refresher.secretEnv" (list . "flower" "FLOWER_BASIC_AUTH") }}
{{- end }}
{{ include "refresher.secretEnv" (list . "flower" "FLOWER_COOKIE_SECRET") }}
      # Without it Flower generates one at each start, and OAuth users must log in again.
      optional: true
{{ include "refresher.env" (dict
  "CACHE_NAMESPACE" .Values.namespace
  "FLOWER_ADDRESS" .Values.pod.listenAddress
  "FLOWER_PORT" "5555") }}
{{- with include "refresher.flowerPrefix" . }}
{{ include "refresher.env" (dict "FLOWER_URL_PREFIX" (trimPrefix "/" .)) }}
{{- end }}
{{- end -}}
