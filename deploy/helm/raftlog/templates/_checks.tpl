{{- /* What a schema cannot say. */ -}}
{{- define "raftlog.check" -}}
{{- if lt (int .Values.replicas) (int .Values.voters) -}}
{{- fail (printf "voters is %d, but there are only %d replicas: set voters to 1, 3, 5 or 7, and to no more than replicas" (int .Values.voters) (int .Values.replicas)) -}}
{{- end -}}
{{- $before := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "raftlog.fullname" .) -}}
{{- if $before -}}
{{- $annotations := $before.metadata.annotations | default dict -}}
{{- $voters := index $annotations "raftlog/voters" | default (toString .Values.voters) -}}
{{- if and (ne $voters (toString .Values.voters)) (not .Values.dynamicVoters) -}}
{{- fail (printf "voters is %v, but this cluster has %s, and they can change only with dynamicVoters" .Values.voters $voters) -}}
{{- end -}}
{{- if and (gt (int $voters) 1) (eq (int .Values.voters) 1) -}}
{{- fail (printf "%s voters cannot become one by restarts: the last but one would take the majority with it" $voters) -}}
{{- end -}}
{{- if gt (int $voters) (int .Values.replicas) -}}
{{- fail (printf "%s nodes vote, and there would be only %v replicas: lower voters first, and wait until the others have left" $voters .Values.replicas) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.config -}}
{{- if or (has $name (list "node.id" "broker.id" "process.roles" "listeners" "advertised.listeners" "controller.quorum.voters" "controller.quorum.auto.join.enable" "controller.listener.names" "inter.broker.listener.name" "listener.security.protocol.map" "log.dirs" "log.dir" "metadata.log.dir" "broker.rack" "sasl.enabled.mechanisms")) (hasPrefix "raftlog.admin." $name) (hasPrefix "ssl.keystore." $name) (hasPrefix "ssl.truststore." $name) -}}
{{- fail (printf "config: the chart sets %s itself; see values.yaml for what it is made from" $name) -}}
{{- end -}}
{{- if or (contains "password" $name) (contains "jaas" $name) (hasSuffix "secret" $name) (hasSuffix "secret.key" $name) -}}
{{- fail (printf "config: %s is a secret, and config shows in the pods' checksum; use sasl.users, or extraEnv with a secretKeyRef" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
