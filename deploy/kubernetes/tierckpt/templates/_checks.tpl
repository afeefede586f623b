{{/* What the schema cannot say, since it depends on several values or needs a sentence. */}}
{{- define "tierckpt.checks" -}}
{{- $instead := dict "job" "job" "save_dir" "checkpoints" "grace_s" "graceSeconds" "memory_cap_bytes" "memory.size" "metrics_listen" "metrics.port" "runtime_dir" "" "node" "" "domain" "" -}}
{{- range $key, $value := $instead -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s is set by the chart itself%s: remove it" $key (ternary "" (printf ", from the value %s" $value) (empty $value))) -}}
{{- end -}}
{{- end -}}
{{- if eq (.Values.config.on_node_loss | default "report") "end_trainers" -}}
{{- if and (eq .Values.mode "daemonset") (not .Values.daemonset.hostPID) -}}
{{- fail "config.on_node_loss is end_trainers, for which the agent has to see the trainers' processes: set daemonset.hostPID to true, or mode to sidecar" -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") (not .Values.training.shareProcessNamespace) -}}
{{- fail "config.on_node_loss is end_trainers, for which the agent has to see the trainers' processes: set training.shareProcessNamespace to true" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.memory.limit (not (hasSuffix "%" .Values.memory.size)) -}}
{{- fail (printf "memory.limit is only for a memory.size in percent: with %s the limit is computed" .Values.memory.size) -}}
{{- end -}}
{{- end }}
