#!/usr/bin/env bash
# Alerts, scrape configuration and every expression of the dashboard are valid, each alert fires when it should, and the
# dashboard's panels about memory and pace show what they say.
set -u
. "$(dirname "$0")/lib.sh"
needs promtool python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deploy=$ops_top/deploy/prometheus
bad=0
promtool check config "$deploy/prometheus.yml" || bad=1 # and the rules that it names
promtool test rules "$ops_top/tests/ops/rules.test.yml" || bad=1
python3 "$ops_top/tests/ops/dashboard_rules.py" "$deploy/dashboard.json" >"$work/dashboard.yml" &&
    promtool check rules "$work/dashboard.yml" || bad=1
cp "$ops_top/tests/ops/dashboard.test.yml" "$work" # which names the rules beside it
promtool test rules "$work/dashboard.test.yml" || bad=1
exit $bad
