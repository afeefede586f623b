{{/* The agent's container, the same in a DaemonSet and as a sidecar. */}}
{{- define "tierckpt.agentContainer" -}}
name: tierckpt-agent
image: {{ include "tierckpt.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.mode "sidecar" }}
restartPolicy: Always
{{- end }}
env:
  {{- include "tierckpt.env" . | nindent 2 }}
  - name: TIERCKPT_JOB
    value: {{ include "tierckpt.job" . }}
  {{- if eq .Values.mode "sidecar" }}
  - name: TIERCKPT_DOMAIN
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- end }}
  {{- if hasSuffix "%" .Values.memory.size }}
  - name: TIERCKPT_MEMORY_PERCENT
    value: {{ trimSuffix "%" .Values.memory.size | quote }}
  - name: TIERCKPT_MEMORY_LIMIT
    valueFrom: {resourceFieldRef: {containerName: tierckpt-agent, resource: limits.memory, divisor: "1"}}
  {{- end }}
ports:
  - {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- if eq .Values.mode "sidecar" }}
startupProbe: # the trainers are started after it
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
{{- end }}
readinessProbe:
  exec: {command: [tierckpt, status]}
  periodSeconds: 15
  timeoutSeconds: 5
livenessProbe: # for an agent that hangs longer than its memory is kept
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: {{ include "tierckpt.livenessFailures" . }}
resources:
  {{- if hasSuffix "%" .Values.memory.size }}
  requests: {cpu: {{ .Values.cpu | quote }}}
  {{- with .Values.memory.limit }}
  limits: {memory: {{ . }}}
  {{- end }}
  {{- else }}
  requests: {cpu: {{ .Values.cpu | quote }}, memory: {{ include "tierckpt.memoryLimit" . }}}
  limits: {memory: {{ include "tierckpt.memoryLimit" . }}}
  {{- end }}
securityContext:
  {{- include "tierckpt.containerSecurity" . | nindent 2 }}
  readOnlyRootFilesystem: true
volumeMounts:
  {{- include "tierckpt.mounts" . | nindent 2 }}
{{- end }}

{{/* By these a trainer finds the agent of its node. */}}
{{- define "tierckpt.env" -}}
- name: TIERCKPT_CONFIG
  value: /etc/tierckpt/config.json
- name: TIERCKPT_RUNTIME_DIR
  value: /run/tierckpt
- name: TIERCKPT_NODE
  valueFrom: {fieldRef: {fieldPath: {{ ternary "metadata.name" "spec.nodeName" (eq .Values.mode "sidecar") }}}}
{{- end }}

{{- define "tierckpt.mounts" -}}
- {name: tierckpt-runtime, mountPath: /run/tierckpt}
- {name: tierckpt-config, mountPath: /etc/tierckpt, readOnly: true}
- {name: checkpoints, mountPath: {{ .Values.checkpoints.mountPath }}}
{{- end }}

{{/* The runtime directory of a sidecar is in memory because only there Kubernetes makes it one in which no user can
replace the files of another one; it needs a few megabytes. The snapshots are not in it. */}}
{{- define "tierckpt.volumes" -}}
- name: tierckpt-runtime
  {{- if eq .Values.mode "sidecar" }}
  emptyDir: {medium: Memory, sizeLimit: 256Mi}
  {{- else }}
  hostPath: {path: {{ .Values.daemonset.hostPath }}/{{ .Release.Name }}, type: DirectoryOrCreate}
  {{- end }}
- name: tierckpt-config
  configMap: {name: {{ include "tierckpt.name" . }}}
- name: checkpoints
  persistentVolumeClaim: {claimName: {{ .Values.checkpoints.claim }}}
{{- end }}

{{- define "tierckpt.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tierckpt.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}
