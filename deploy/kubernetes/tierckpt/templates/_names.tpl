{{/* Names and labels. The release is one job, so that several jobs have several releases. */}}
{{- define "tierckpt.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "tierckpt.job" -}}
{{- .Values.job | default .Release.Name -}}
{{- end }}

{{- define "tierckpt.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- define "tierckpt.selector" -}}
app.kubernetes.io/name: tierckpt
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tierckpt.labels" -}}
{{ include "tierckpt.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
