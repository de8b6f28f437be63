{{/* What the schema can't say: a value that is missing, that does not go with another, or that must not be shown.
     Each mistake is a line, and all are reported together. */}}
{{- define "refresher.ops.checks" -}}
{{- with without (splitList "\n" (include "refresher.mistakes" .)) "" -}}{{- fail (join "\n" .) -}}{{- end -}}
{{- end -}}

{{ define "refresher.mistakes" }}
{{ include "refresher.checkSecrets" . }}
{{ include "refresher.checkAddresses" . }}
{{ include "refresher.checkWorker" . }}
{{ if .Values.flower.enabled }}{{ include "refresher.checkFlower" . }}{{ end }}
{{ if eq .Values.autoscaling.kind "keda" }}{{ include "refresher.checkKeda" . }}{{ end }}
{{ end }}

{{/* Their passwords may be in them, so a refusal shows none of it. The schema's would. */}}
{{ define "refresher.checkSecrets" }}
{{- $broker := "^(rediss?([+]sentinel)?|amqps?|pyamqp)://." -}}
{{ with .Values }}
{{ if not (regexMatch "^$|^rediss?([+](sentinel|cluster))?://." .cache.url) }}cache.url: expected redis://…, redis+sentinel://…, redis+cluster://…, or the same with rediss{{ end }}
{{ if not (regexMatch (printf "^$|%s" $broker) .broker.url) }}broker.url: expected redis://…, redis+sentinel://…, the same with rediss, amqp://… or amqps://…{{ end }}
{{ if not (regexMatch (printf "^$|%s" $broker) .flower.brokerUrl) }}flower.brokerUrl: expected redis://…, redis+sentinel://…, the same with rediss, amqp://… or amqps://…{{ end }}
{{ if not (regexMatch "^(bolt|neo4j)([+]s|[+]ssc)?://[^\\s/?#@]+/?([?][^\\s#@]*)?$" .graph.uri) }}graph.uri: expected bolt://host:port, neo4j://…, the same with +s, without user and password, which go into graph.user and graph.password{{ end }}
{{ if not (regexMatch "^$|^[^:,]+:[^,]+(,[^:,]+:[^,]+)*$" .flower.basicAuth) }}flower.basicAuth: expected user:password, or several, comma-separated{{ end }}
{{ if not (regexMatch "^$|^(amqps?|https?)://." .autoscaling.keda.queue.rabbitmq.url) }}autoscaling.keda.queue.rabbitmq.url: expected amqp://…, amqps://…, http://… or https://…{{ end }}
{{ end }}
{{ end }}

{{ define "refresher.checkAddresses" }}
{{ with .Values }}
{{ if not .secrets.worker }}
{{ if not .cache.url }}cache.url: where is the cache? redis://user:password@host:6379/0, or name a Secret with CACHE_REDIS_URL in secrets.worker{{ end }}
{{ if not .broker.url }}broker.url: where is the broker? redis://… or amqp://…, or name a Secret with CACHE_BROKER_URL in secrets.worker{{ end }}
{{ if not .graph.password }}graph.password: of the user graph.user, or name a Secret with NEO4J_PASSWORD in secrets.worker{{ end }}
{{ else if or .cache.url .broker.url .graph.password .feed.password }}
secrets.worker: the Secret has the URLs and the passwords; leave cache.url, broker.url, graph.password and feed.password empty
{{ end }}
{{ if and .feed.user (not .feed.enabled) }}feed.user: goes with feed.enabled=true{{ end }}
{{ if and (not .secrets.worker) (ne (empty .feed.user) (empty .feed.password)) }}feed.password: goes with feed.user{{ end }}
{{ if and .broker.url (ne (eq .broker.kind "rabbitmq") (regexMatch "^(py)?amqp" .broker.url)) }}{{ printf "broker.kind: %s does not go with broker.url, which is the other one's" .broker.kind }}{{ end }}
{{ if and .certificates.graphFile (not .certificates.secret) }}certificates.graphFile: names a file of certificates.secret, which is empty{{ end }}
{{ if and .certificates.graphFile (not (contains "+s://" .graph.uri)) }}certificates.graphFile: goes with bolt+s:// or neo4j+s:// in graph.uri{{ end }}
{{ end }}
{{ end }}

{{ define "refresher.checkWorker" }}
{{ with .Values }}
{{ if not .queries.modules }}queries.modules: the modules that use @query, such as [my_queries]; without them the workers can load nothing{{ end }}
{{ if and .queries.files .queries.existingConfigMap }}queries.files: there is queries.existingConfigMap already; give one of the two{{ end }}
{{- $hard := include "refresher.hardLimitSeconds" $ | int -}}
{{ with .worker.terminationGracePeriodSeconds }}
{{ if le (int .) $hard }}{{ printf "worker.terminationGracePeriodSeconds: %d is not above the hard limit of a refresh, which is %d s (worker.budgetSeconds + 15 s): a pod that ends would lose what it loads" (int .) $hard }}{{ end }}
{{ end }}
{{ if and (ne .autoscaling.kind "none") (gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) }}autoscaling.minReplicas: is more than autoscaling.maxReplicas{{ end }}
{{ if and .metrics.podMonitor.enabled (not .metrics.enabled) }}metrics.podMonitor.enabled: there is nothing to scrape without metrics.enabled{{ end }}
{{ if and .metrics.enabled (eq (int .metrics.port) (int .worker.healthPort)) }}metrics.port: is worker.healthPort, too{{ end }}
{{ end }}
{{ end }}

{{ define "refresher.checkFlower" }}
{{ with .Values }}
{{ if and (not .secrets.flower) (or .flower.oauth.provider (not .flower.basicAuth)) }}flower.basicAuth: nobody looks at Flower without a password: user:password, or name a Secret with FLOWER_BASIC_AUTH (with OAuth: FLOWER_OAUTH2_KEY, FLOWER_OAUTH2_SECRET, FLOWER_OAUTH2_REDIRECT_URI) in secrets.flower, or set flower.enabled=false{{ end }}
{{ if and .secrets.flower (or .flower.basicAuth .flower.cookieSecret .flower.brokerUrl) }}secrets.flower: the Secret has the password and the broker's URL; leave flower.basicAuth, flower.cookieSecret and flower.brokerUrl empty{{ end }}
{{ if and .secrets.worker (not .secrets.flower) (not .flower.brokerUrl) }}flower.brokerUrl: where is the broker? It stands in secrets.worker, which Flower does not get{{ end }}
{{ if ne (empty .flower.oauth.provider) (empty .flower.oauth.allowed) }}flower.oauth: provider and allowed go together{{ end }}
{{ with .flower.ingress }}
{{ if and .enabled (not .host) }}flower.ingress.host: under which name?{{ end }}
{{ if and .enabled (not .tlsSecret) (not .tlsElsewhere) }}flower.ingress.tlsSecret: the password would go over the network in the clear; name a TLS Secret, or say tlsElsewhere=true where something in front ends TLS{{ end }}
{{ end }}
{{ end }}
{{ end }}

{{ define "refresher.checkKeda" }}
{{- $keda := .Values.autoscaling.keda -}}
{{ if not (or $keda.queue.enabled $keda.leadTime.enabled) }}autoscaling.keda: scales by what? Enable queue, leadTime or both{{ end }}
{{ if $keda.queue.enabled }}
{{ if and (eq .Values.broker.kind "redis") (not $keda.queue.redis.address) }}autoscaling.keda.queue.redis.address: the broker as KEDA finds it, host:port, or its Sentinels{{ end }}
{{ if and (contains "+sentinel://" .Values.broker.url) (not $keda.queue.redis.sentinelMaster) }}autoscaling.keda.queue.redis.sentinelMaster: broker.url is behind Sentinels, so KEDA needs the name of their master, and their addresses in …redis.address{{ end }}
{{ if and (eq .Values.broker.kind "rabbitmq") (not $keda.queue.rabbitmq.url) (not .Values.secrets.scaler) (not $keda.queue.triggerAuthentication) }}autoscaling.keda.queue.rabbitmq.url: the broker as KEDA finds it, or name a Secret with it as `host` in secrets.scaler{{ end }}
{{ if and (or .Values.secrets.scaler $keda.queue.triggerAuthentication) (or $keda.queue.redis.username $keda.queue.redis.password $keda.queue.redis.sentinelUsername $keda.queue.redis.sentinelPassword $keda.queue.rabbitmq.url) }}secrets.scaler: the Secret, or the TriggerAuthentication, says who KEDA is; leave autoscaling.keda.queue's username, password and url empty{{ end }}
{{ if and .Values.secrets.scaler $keda.queue.triggerAuthentication }}secrets.scaler: there is autoscaling.keda.queue.triggerAuthentication already; give one of the two{{ end }}
{{ end }}
{{ if and $keda.leadTime.enabled (not $keda.leadTime.prometheus) }}autoscaling.keda.leadTime.prometheus: which Prometheus, such as http://prometheus.monitoring.svc:9090{{ end }}
{{ end }}
