{{- /* Pods add a number to this name, and Kubernetes a hash: 52 characters leave room for both. */ -}}
{{- define "raftlog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "raftlog.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "raftlog.labels" -}}
{{ include "raftlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "raftlog.headless" -}}
{{ include "raftlog.fullname" . }}-headless
{{- end -}}

{{- /* Where the pods' own names are: raftlog-0.<this>. */ -}}
{{- define "raftlog.podDomain" -}}
{{ include "raftlog.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "raftlog.secretName" -}}
{{ .Values.existingSecret | default (include "raftlog.fullname" .) }}
{{- end -}}

{{- define "raftlog.configName" -}}
{{ include "raftlog.fullname" . }}-config
{{- end -}}

{{- define "raftlog.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "raftlog.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "raftlog.adminScheme" -}}
{{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
{{- end -}}
