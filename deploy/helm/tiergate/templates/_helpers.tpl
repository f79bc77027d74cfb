{{- define "tiergate.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "tiergate.selector" -}}
app.kubernetes.io/name: tiergate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tiergate.labels" -}}
{{ include "tiergate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
