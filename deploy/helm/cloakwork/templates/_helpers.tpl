{{- define "cloakwork.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cloakwork.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cloakwork.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "cloakwork.selector" . }}
{{- end }}

{{- define "cloakwork.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "cloakwork.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "cloakwork.scheme" -}}
{{ if .Values.tls.existingSecret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{/* What would start and then lose keys or refuse every request. */}}
{{- define "cloakwork.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: build the image from the repository's Dockerfile and say where it is" }}
{{- end }}
{{- $most := .Values.replicas | int }}
{{- if .Values.autoscaling.enabled }}
{{- $most = max $most (.Values.autoscaling.maxReplicas | int) }}
{{- if not .Values.autoscaling.prometheusAddress }}
{{- fail "autoscaling.prometheusAddress is empty: the address of Prometheus, for example http://prometheus.monitoring:9090" }}
{{- end }}
{{- end }}
{{- if and (gt $most 1) (not (and .Values.database.existingSecret .Values.storage.url .Values.auditKey.existingSecret)) }}
{{- fail "several services share a database, an object storage and an audit key: set database.existingSecret, storage.url and auditKey.existingSecret" }}
{{- end }}
{{- if and (gt $most 1) (ne (toString .Values.settings.zoo) "false") }}
{{- fail "several services need the same files of models, and each would compile a zoo of its own: set settings.zoo to false and add models to every data folder" }}
{{- end }}
{{- end }}
