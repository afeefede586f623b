{{/* What has to be computed: memory and times. */}}
{{- define "tierckpt.mebibytes" -}}
{{- $unit := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- mul (regexFind "^[0-9]+" .) (get $unit (regexFind "[MGT]i$" .)) -}}
{{- end }}

{{/* The memory of the agent's container: what registration wants to have free beside the snapshots is 5 %. */}}
{{- define "tierckpt.memoryLimit" -}}
{{- $size := include "tierckpt.mebibytes" .Values.memory.size | int64 -}}
{{- $overhead := include "tierckpt.mebibytes" .Values.memory.overhead | int64 -}}
{{- printf "%dMi" (add $size (div (add (mul $size 5) 99) 100) $overhead) -}}
{{- end }}

{{/* From SIGTERM to SIGKILL. Kubernetes ends a sidecar when the trainers have ended, so it has what they leave. */}}
{{- define "tierckpt.terminationGracePeriod" -}}
{{- $least := add .Values.graceSeconds 5 (ternary .Values.training.exitSeconds 0 (eq .Values.mode "sidecar")) | int64 -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- $least -}}
{{- else if lt ($given | int64) $least -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but has to be at least %d: graceSeconds (%d), 5 s for the agent%s. Raise it, or lower graceSeconds" ($given | int64) $least (.Values.graceSeconds | int64) (ternary (printf ", and training.exitSeconds (%d)" (.Values.training.exitSeconds | int64)) "" (eq .Values.mode "sidecar"))) -}}
{{- else -}}
{{- $given | int64 -}}
{{- end -}}
{{- end }}

{{/* A restart of the container frees the memory, so it must not come while the supervisor still holds it (linger_s). */}}
{{- define "tierckpt.livenessFailures" -}}
{{- add (div (.Values.config.linger_s | default 600 | int64) 30) 4 -}}
{{- end }}
