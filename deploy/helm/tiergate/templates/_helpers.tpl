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

{{/*
The families of addresses that a Service has.
*/}}
{{- define "tiergate.families" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{/*
Not empty if the listener for other gateways asks for a certificate. A comment asks for none.
*/}}
{{- define "tiergate.asksForCertificate" -}}
{{- regexFind `(?m)^[^#\n]*\bclient_ca\s*=\s*["'][^"'\s]` .Values.config -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "TIERGATE__AUTHZ__TLS__CLIENT_CA" -}}
{{- .value -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Refuses the embedded store where its folder is on the read-only root, and where two processes would open it.
*/}}
{{- define "tiergate.checkStore" -}}
{{- $kind := regexFind `(?m)^[^#\n]*\bkind\s*=\s*["']redis["']` .Values.config -}}
{{- $table := regexFind `(?s)\[store\.embedded\][^\[]*` .Values.config -}}
{{- $path := regexReplaceAll `(?s).*(?:^|\n)\s*path\s*=\s*["']([^"']+)["'].*` $table `$1` -}}
{{- if or (not $table) (eq $path $table) -}}
{{- $path = "data" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "TIERGATE__STORE__KIND" -}}
{{- $kind = ternary "redis" "" (eq (toString .value) "redis") -}}
{{- else if eq .name "TIERGATE__STORE__EMBEDDED__PATH" -}}
{{- $path = toString .value -}}
{{- end -}}
{{- end -}}
{{- if not $kind -}}
{{- $path = ternary (clean $path) (printf "/var/lib/tiergate/%s" $path | clean) (isAbs $path) -}}
{{- $isMounted := false -}}
{{- range .Values.extraVolumeMounts -}}
{{- if and (not .readOnly) (hasPrefix (printf "%s/" (clean .mountPath)) (printf "%s/" $path)) -}}
{{- $isMounted = true -}}
{{- end -}}
{{- end -}}
{{- if not $isMounted -}}
{{- fail (printf "config: the embedded store writes into %s, and the root of the container is read-only: mount a volume there (extraVolumes, extraVolumeMounts), or set [store] kind = \"redis\"" $path) -}}
{{- end -}}
{{- if or .Values.autoscaling.enabled (ne (int .Values.replicas) 1) (ne .Values.strategy.type "Recreate") -}}
{{- fail "config: one process at a time opens the embedded store: set autoscaling.enabled=false, replicas=1 and strategy.type=Recreate, or [store] kind = \"redis\"" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "tiergate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
