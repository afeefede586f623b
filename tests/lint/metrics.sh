#!/usr/bin/env bash
# The page of all metrics is what agent and command say of theirs, and alerts and dashboard use no other name: metrics.sh
# TOP BUILD
set -u
top=${1:-$(dirname "$0")/../..} build=${2:-}
agent=$build/runtime/agent/tierckptd command=$build/runtime/cli/tierckpt
for program in "$agent" "$command"; do [ -x "$program" ] || { echo "skipped: $program is not built"; exit 77; }; done
bad=0
metrics=$("$agent" --metrics && "$command" --metrics) || exit 1
diff <(grep '^- `tierckpt_' "$top/docs/metrics.md") <(printf '%s\n' "$metrics") ||
    { echo "the lists in docs/metrics.md are not what agent and command print: $agent --metrics, $command --metrics"; bad=1; }
known=$(printf '%s\n' "$metrics" | sed -nE 's/^- `([a-z_]+)[^(]*\(histogram\).*/\1_bucket\n\1_sum\n\1_count/p; s/^- `([a-z_]+).*/\1/p' | sort)
for file in "$top"/deploy/prometheus/* "$top"/tests/ops/*.test.yml; do
    unknown=$(grep -oE '\btierckpt_[a-z_]+' "$file" | sort -u | comm -23 - <(printf '%s\n' "$known"))
    [ -z "$unknown" ] || { echo "${file#"$top"/} uses metrics that do not exist:" $unknown; bad=1; }
done
# An alert without a test, or one that is not documented.
while IFS= read -r alert; do
    grep -q "alertname=\"$alert\", alertstate=\"firing\"" "$top/tests/ops/rules.test.yml" || { echo "no test lets $alert fire"; bad=1; }
    grep -q "\`$alert\`" "$top/docs/metrics.md" || { echo "docs/metrics.md does not name the alert $alert"; bad=1; }
done < <(sed -nE 's/^ *- alert: (\w+)$/\1/p' "$top/deploy/prometheus/tierckpt.rules.yml")
exit $bad
