{{- /* A value as a setting's text. Helm has every number as a float: 1073741824 must not become 1.073741824e+09. */ -}}
{{- define "raftlog.text" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . | toString | replace "\\" "\\\\" | replace "\n" " " -}}
{{- end -}}
{{- end -}}

{{- define "raftlog.clientsProtocol" -}}
{{ ternary "SASL_" "" .Values.sasl.enabled }}{{ ternary "SSL" "PLAINTEXT" .Values.tls.enabled }}
{{- end -}}

{{- define "raftlog.controllersProtocol" -}}
{{ ternary "SSL" "PLAINTEXT" (and .Values.tls.enabled .Values.tls.controllers) }}
{{- end -}}

{{- /* How many voters the cluster began with. */ -}}
{{- define "raftlog.initialVoters" -}}
{{- $before := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "raftlog.fullname" .) | default dict -}}
{{- $annotations := dig "metadata" "annotations" dict $before | default dict -}}
{{- $known := index $annotations "raftlog/initial-voters" | default (index $annotations "raftlog/voters") -}}
{{- .Values.initialVoters | default $known | default .Values.voters -}}
{{- end -}}

{{- /* 0@raftlog-0.raftlog-headless...:9093,1@raftlog-1... Where a node begins; called with (list $ number). A node that
votes lists all first voters, also those that have left: until the metadata holds the voters, it counts them. With
fewer, two majorities would have no voter in common. A broker must not list itself. */ -}}
{{- define "raftlog.voters" -}}
{{- $ := index . 0 -}}
{{- $present := int $.Values.voters -}}
{{- $initial := include "raftlog.initialVoters" $ | int -}}
{{- $voters := list -}}
{{- range $voter := until (ternary $initial (min $present $initial | int) (lt (index . 1) $present)) -}}
{{- $voters = append $voters (printf "%d@%s-%d.%s:9093" $voter (include "raftlog.fullname" $) $voter (include "raftlog.podDomain" $)) -}}
{{- end -}}
{{- join "," $voters -}}
{{- end -}}

{{- /* The settings that all nodes share, but for users. They are the pods' checksum, so that a change restarts nodes. */ -}}
{{- define "raftlog.sharedSettings" -}}
{{- $copies := min 3 (int .Values.replicas) -}}
{{- $protocol := include "raftlog.clientsProtocol" . -}}
{{- $settings := dict
  "default.replication.factor" $copies
  "offsets.topic.replication.factor" $copies
  "transaction.state.log.replication.factor" $copies
  "min.insync.replicas" (ternary 2 1 (ge $copies 3))
  "transaction.state.log.min.isr" (ternary 2 1 (ge $copies 3)) -}}
{{- range $name, $value := .Values.config -}}
{{- $_ := set $settings $name (include "raftlog.text" $value) -}}
{{- end -}}
{{- if .Values.dynamicVoters -}}
{{- $_ := set $settings "controller.quorum.auto.join.enable" "true" -}}
{{- end -}}
{{- $_ := set $settings "controller.listener.names" "CONTROLLER" -}}
{{- $_ := set $settings "inter.broker.listener.name" "CLIENTS" -}}
{{- $_ := set $settings "listener.security.protocol.map" (printf "CLIENTS:%s,%sCONTROLLER:%s" $protocol (ternary (printf "EXTERNAL:%s," $protocol) "" .Values.external.enabled) (include "raftlog.controllersProtocol" .)) -}}
{{- $_ := set $settings "raftlog.admin.listener" "0.0.0.0:9644" -}}
{{- $_ := set $settings "raftlog.admin.tokens.file" "/run/raftlog/admin.tokens" -}}
{{- if .Values.sasl.enabled -}}
{{- $_ := set $settings "sasl.enabled.mechanisms" (join "," .Values.sasl.mechanisms) -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $settings "raftlog.admin.ssl.certificate" "/etc/raftlog-tls/tls.crt" -}}
{{- $_ := set $settings "raftlog.admin.ssl.key" "/etc/raftlog-tls/tls.key" -}}
{{- $_ := set $settings "ssl.truststore.type" "PEM" -}}
{{- $_ := set $settings "ssl.truststore.location" "/etc/raftlog-tls/ca.crt" -}}
{{- $_ := set $settings "ssl.keystore.type" "PEM" -}}
{{- if .Values.tls.combinedKey -}}
{{- $_ := set $settings "ssl.keystore.location" (printf "/etc/raftlog-tls/%s" .Values.tls.combinedKey) -}}
{{- end -}}
{{- else -}}
{{- /* Tokens cross the cluster's network in the clear, as everything else does then. */ -}}
{{- $_ := set $settings "raftlog.admin.tokens.without.tls" "true" -}}
{{- end -}}
{{- range $name, $value := $settings }}
{{ $name }}={{ $value }}
{{- end }}
{{- end -}}

{{- /* The users that log in by PLAIN, at each listener. */ -}}
{{- define "raftlog.userSettings" -}}
{{- if and .Values.sasl.enabled .Values.sasl.users -}}
{{- $line := "org.apache.kafka.common.security.plain.PlainLoginModule required" -}}
{{- range $user, $password := .Values.sasl.users -}}
{{- $line = printf "%s user_%s=\"%s\"" $line $user $password -}}
{{- end }}
listener.name.clients.plain.sasl.jaas.config={{ $line }};
{{- if .Values.external.enabled }}
listener.name.external.plain.sasl.jaas.config={{ $line }};
{{- end }}
{{- end }}
{{- end -}}

{{- /* What differs from node to node; called with (list $ number). */ -}}
{{- define "raftlog.ownSettings" -}}
{{- $ := index . 0 -}}
{{- $number := index . 1 -}}
{{- $votes := lt $number (int $.Values.voters) -}}
{{- $external := $.Values.external -}}
{{- $port := ternary (add $external.firstNodePort $number) $external.port (eq $external.type "NodePort") -}}
node.id={{ $number }}
process.roles={{ ternary "broker,controller" "broker" $votes }}
controller.quorum.voters={{ include "raftlog.voters" . }}
listeners=CLIENTS://:9092{{ if $external.enabled }},EXTERNAL://:9094{{ end }}{{ if $votes }},CONTROLLER://:9093{{ end }}
advertised.listeners=CLIENTS://{{ include "raftlog.fullname" $ }}-{{ $number }}.{{ include "raftlog.podDomain" $ }}:9092
{{- if $external.enabled }},EXTERNAL://{{ $external.host | replace "{}" (toString $number) }}:{{ $port }}{{ end }}
{{- end -}}
