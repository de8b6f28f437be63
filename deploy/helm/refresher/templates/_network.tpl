{{/* The ports of the servers that a URL names, unless they are said: a JSON list.
     Takes a dict: what, url, ports, standard (of a URL without a port). */}}
{{- define "refresher.ports" -}}
{{- $ports := list -}}
{{- if .ports -}}
{{- $ports = .ports -}}
{{- else if not .url -}}
{{- fail (printf "%s.ports: the network policy has to name them, and the URL is in a Secret: [%d], say" .what (int .standard)) -}}
{{- else if contains "+sentinel://" .url -}}
{{- fail (printf "%s.ports: behind Sentinels, theirs and those of the servers: [26379, 6379], say" .what) -}}
{{- else -}}
{{- $authority := regexReplaceAll "[/?#].*$" (regexReplaceAll "^[a-z0-9+]+://" .url "") "" -}}
{{- range splitList "," (regexReplaceAll "^.*@" $authority "") -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default $.standard | int) -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $ports) -}}
{{- end -}}

{{/* A rule that lets out to a server. Takes a dict: ports (JSON), peers. */}}
{{- define "refresher.egress" -}}
- ports:
    {{- range fromJsonArray .ports }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
  {{- with .peers }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "refresher.egressToBroker" -}}
{{- $tls := regexMatch "^(rediss|amqps)://" .Values.broker.url -}}
{{- $standard := ternary (ternary 5671 5672 $tls) 6379 (eq .Values.broker.kind "rabbitmq") -}}
{{- include "refresher.egress" (dict "peers" .Values.broker.peers "ports" (include "refresher.ports" (dict
  "what" "broker" "url" .Values.broker.url "ports" .Values.broker.ports "standard" $standard))) -}}
{{- end -}}

{{- define "refresher.egressToDns" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {protocol: UDP, port: {{ int . }}}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
  {{- with .Values.networkPolicy.dns.peers }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
