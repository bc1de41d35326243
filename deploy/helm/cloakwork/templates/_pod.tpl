{{/*
The template of a pod. Takes a dictionary: `root`, `role` (all, web, worker), `own` (values of that role).
*/}}
{{- define "cloakwork.pod" -}}
metadata:
  labels:
    {{- include "cloakwork.labels" $.root | nindent 4 }}
    {{- include "cloakwork.component" . | nindent 4 }}
  {{- with .own.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "cloakwork.serviceAccount" $.root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $.root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .own.terminationGracePeriodSeconds | int }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    # Once: the service keeps its folder its owner's alone.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: cloakwork
      image: "{{ .own.image.repository }}:{{ .own.image.tag | default $.root.Chart.AppVersion }}"
      imagePullPolicy: {{ .own.image.pullPolicy }}
      {{- if $.root.Values.maintenance }}
      command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      env:
        - {name: CLOAKWORK_HOST, value: "0.0.0.0"}
        - {name: CLOAKWORK_PORT, value: "8123"}
        # A folder of its own in the volume: whose top belongs to root.
        - {name: CLOAKWORK_DATA_FOLDER, value: /data/cloakwork}
        - {name: CLOAKWORK_ROLE, value: {{ .role }}}
        {{- range $name, $value := .own.settings }}
        - name: CLOAKWORK_{{ upper $name }}
          value: {{ if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ int64 $value | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}{{ else }}{{ $value | toString | quote }}{{ end }}
        {{- end }}
        {{- if $.root.Values.database.existingSecret }}
        - name: CLOAKWORK_DATABASE_URL
          valueFrom:
            secretKeyRef: {name: {{ $.root.Values.database.existingSecret }}, key: {{ $.root.Values.database.key }}}
        {{- if not $.root.Values.storage.url }}
        - {name: CLOAKWORK_SINGLE_HOST, value: "true"}
        {{- end }}
        {{- end }}
        {{- with $.root.Values.storage.url }}
        - {name: CLOAKWORK_STORAGE_URL, value: {{ . | quote }}}
        {{- end }}
        {{- if $.root.Values.auditKey.existingSecret }}
        - {name: CLOAKWORK_AUDIT_KEY, value: /run/cloakwork/audit/{{ $.root.Values.auditKey.key }}}
        {{- end }}
        {{- if $.root.Values.tls.existingSecret }}
        - {name: CLOAKWORK_TLS_CERTIFICATE, value: /run/cloakwork/tls/tls.crt}
        - {name: CLOAKWORK_TLS_KEY, value: /run/cloakwork/tls/tls.key}
        {{- end }}
      {{- with $.root.Values.storage.existingSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: http, containerPort: 8123}
      {{- if not $.root.Values.maintenance }}
      # Migrations run before it listens.
      startupProbe:
        httpGet: {path: /v2/health/live, port: http, scheme: {{ include "cloakwork.scheme" $.root }}}
        periodSeconds: 5
        failureThreshold: 120
      livenessProbe:
        httpGet: {path: /v2/health/live, port: http, scheme: {{ include "cloakwork.scheme" $.root }}}
        periodSeconds: 20
        timeoutSeconds: 10
        failureThreshold: 6
      # The service gives its database and its engine five seconds each.
      readinessProbe:
        httpGet: {path: /v2/health/ready, port: http, scheme: {{ include "cloakwork.scheme" $.root }}}
        periodSeconds: 10
        timeoutSeconds: 12
        failureThreshold: 2
      lifecycle:
        preStop:
          exec: {command: [sleep, "5"]}
      {{- end }}
      resources:
        {{- toYaml .own.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: temporary, mountPath: /tmp}
        {{- if $.root.Values.auditKey.existingSecret }}
        - {name: audit, mountPath: /run/cloakwork/audit, readOnly: true}
        {{- end }}
        {{- if $.root.Values.tls.existingSecret }}
        - {name: tls, mountPath: /run/cloakwork/tls, readOnly: true}
        {{- end }}
  volumes:
    {{- if eq .role "web" }}
    # Copies of models, and a key while it is checked: a new pod fetches what it needs.
    - name: data
      emptyDir: {sizeLimit: {{ .own.persistence.size }}}
    {{- end }}
    - name: temporary
      emptyDir: {sizeLimit: {{ .own.temporarySize }}}
    {{- if $.root.Values.auditKey.existingSecret }}
    - name: audit
      secret: {secretName: {{ $.root.Values.auditKey.existingSecret }}, defaultMode: 0440}
    {{- end }}
    {{- if $.root.Values.tls.existingSecret }}
    - name: tls
      secret: {secretName: {{ $.root.Values.tls.existingSecret }}, defaultMode: 0440}
    {{- end }}
  {{- with .own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
