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

{{/* Values of a role: those at the top, and over them what `web` or `worker` says. */}}
{{- define "cloakwork.own" -}}
{{- $own := pick .root.Values "image" "replicas" "settings" "persistence" "resources" "temporarySize" "runtimeClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "podAnnotations" "terminationGracePeriodSeconds" | deepCopy }}
{{- if ne .role "all" }}{{ $own = mergeOverwrite $own (deepCopy (index .root.Values .role)) }}{{ end }}
{{- toYaml $own }}
{{- end }}

{{/* Which role a pod has, as a label; none where one kind of pod does everything. */}}
{{- define "cloakwork.component" -}}
{{- if ne .role "all" }}app.kubernetes.io/component: {{ .role }}{{ end }}
{{- end }}

{{- define "cloakwork.roleName" -}}
{{ include "cloakwork.name" .root }}{{ if ne .role "all" }}-{{ .role }}{{ end }}
{{- end }}

{{/* The roles that this release has, separated by spaces. */}}
{{- define "cloakwork.roles" -}}
{{ if .Values.roles.enabled }}web worker{{ else }}all{{ end }}
{{- end }}

{{/* What would start and then lose keys or requests, or refuse every one. */}}
{{- define "cloakwork.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: build the image from the repository's Dockerfile and say where it is" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.prometheusAddress) }}
{{- fail "autoscaling.prometheusAddress is empty: the address of Prometheus, for example http://prometheus.monitoring:9090" }}
{{- end }}
{{- $most := .Values.replicas | int }}
{{- if .Values.autoscaling.enabled }}
{{- $most = max $most (.Values.autoscaling.maxReplicas | int) }}
{{- end }}
{{- if and (or .Values.roles.enabled (gt $most 1)) (not (and .Values.database.existingSecret .Values.storage.url .Values.auditKey.existingSecret)) }}
{{- fail "several services share a database, an object storage and an audit key: set database.existingSecret, storage.url and auditKey.existingSecret" }}
{{- end }}
{{- range $role := splitList " " (include "cloakwork.roles" .) }}
{{- $own := include "cloakwork.own" (dict "root" $ "role" $role) | fromYaml }}
{{- $least := add (ceil $own.settings.drain_seconds | int) 25 }}
{{- if lt ($own.terminationGracePeriodSeconds | int) ($least | int) }}
{{- fail (printf "terminationGracePeriodSeconds is %v: a pod drains for settings.drain_seconds (%v), waits 5 seconds before and records results after; give it at least %d" $own.terminationGracePeriodSeconds $own.settings.drain_seconds $least) }}
{{- end }}
{{- end }}
{{- end }}
