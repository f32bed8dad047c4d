{{- define "cairn.labels" -}}
app.kubernetes.io/name: cairn
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .stage }}
{{- end }}

{{- define "cairn.name" -}}
{{ printf "%s-%s" .root.Release.Name .stage | trunc 63 }}
{{- end }}
