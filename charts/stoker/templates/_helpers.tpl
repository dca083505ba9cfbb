{{/* The operator's name; a cluster may have several releases. */}}
{{- define "stoker.operator" -}}
{{- if contains "stoker" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}-operator{{ else }}{{ .Release.Name | trunc 43 | trimSuffix "-" }}-stoker-operator{{ end }}
{{- end }}

{{/* The gateway's name: what clients call. */}}
{{- define "stoker.gateway" -}}
{{- if contains "stoker" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}-gateway{{ else }}{{ .Release.Name | trunc 43 | trimSuffix "-" }}-stoker-gateway{{ end }}
{{- end }}

{{/* Of what belongs to no single namespace. */}}
{{- define "stoker.clusterName" -}}
{{ .Release.Namespace }}-{{ include "stoker.operator" . }}
{{- end }}

{{- define "stoker.gateway.clusterName" -}}
{{ .Release.Namespace }}-{{ include "stoker.gateway" . }}
{{- end }}

{{- define "stoker.selector" -}}
app.kubernetes.io/name: stoker-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "stoker.labels" -}}
{{ include "stoker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "stoker.gateway.selector" -}}
app.kubernetes.io/name: stoker-gateway
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "stoker.gateway.labels" -}}
{{ include "stoker.gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* (dict "root" $ "component" "engine") → an image */}}
{{- define "stoker.image" -}}
{{ .root.Values.image.registry }}/stoker-{{ .component }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}
