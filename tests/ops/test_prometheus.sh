#!/usr/bin/env bash
# A Prometheus that scrapes a job and its files: what it gets is valid, a lost node raises the alerts that it should and no
# other, and they end after the recovery.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
needs prometheus promtool prometheus-node-exporter curl python3

# A free port of the loopback interface: Prometheus and node_exporter do not tell which one they got with port 0.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# api PATH PARAMETER...: the JSON that Prometheus answers; query EXPRESSION: its values, one a line.
api() { local path=$1; shift; curl -sf -G "http://$prometheus/api/v1/$path" "$@"; }
query() { api query --data-urlencode "query=$1" | python3 -c 'import json, sys
text = sys.stdin.read()  # empty while Prometheus starts
for sample in json.loads(text)["data"]["result"] if text else []: print(sample["value"][1])'; }
has() { [ "$(query "$1" | head -1)" = "$2" ]; }
must_have() { wait_for "${3:-60}" has "$1" "$2" || die "$1 is not $2 but '$(query "$1")'"; }
firing() { query_names 'ALERTS{alertstate="firing"}'; }
query_names() { api query --data-urlencode "query=$1" | python3 -c 'import json, sys
print(*sorted({sample["metric"]["alertname"] for sample in json.load(sys.stdin)["data"]["result"]}))'; }
fires() { [ "$(firing)" = "$1" ]; }
must_fire() { wait_for "$2" fires "$1" || die "not '$1' is firing but '$(firing)'"; }

train() {
    begin 2
    run_on a 0 --steps 100000 --step-ms 20 --wait-commit
    run_on b 1 --steps 100000 --step-ms 20 --wait-commit
    wait_for 90 said 0 '^COMMITTED' && wait_for 90 said 1 '^COMMITTED' || die "no commit: $(out 0 | tail -3)"
}
at() { ask "$1" --json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["metrics"]["at"])'; }
# The agents have other ports after a restart: Prometheus reads them from a file.
targets() {
    printf '[{"targets": ["%s", "%s"]}]\n' "$(at a)" "$(at b)" >"$work/targets.new"
    mv "$work/targets.new" "$work/targets.json"
}

mkdir "$work/textfile"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500,"version_timeout_ms":3000,"metrics_listen":":0"'
# Each node has a file of its own.
eval "$(declare -f node_json | sed '1s/node_json/plain_json/')"
node_json() {
    local settings="$settings,\"metrics_textfile\":\"$work/textfile/$1.prom\""
    plain_json "$1"
}
storage_interval=50
train
targets
for node in a b; do
    wait_for 30 curl -sf -o "$work/page.$node" "http://$(at $node)/metrics" || die "no metrics of $node"
    promtool check metrics <"$work/page.$node" >"$work/promtool" 2>&1 && [ ! -s "$work/promtool" ] || die "promtool on the metrics of $node: $(cat "$work/promtool")"
done

# The same over node_exporter.
exporter=127.0.0.1:$(free_port)
prometheus-node-exporter --collector.disable-defaults --collector.textfile --collector.textfile.directory="$work/textfile" \
    --web.listen-address="$exporter" >"$work/node_exporter.log" 2>&1 &
exported() { curl -sf "http://$exporter/metrics" | grep -q "^$1"; }
for node in a b; do
    wait_for 60 exported "tierckpt_trainers{job_id=\"$job\",node=\"$node\"} 1" || die "node_exporter has no metrics of $node: $(tail -3 "$work/node_exporter.log")"
done
# The commands' files lie beside those of the agents, and share a metric with them.
checked() { [ "$(printf '%s\n' "$exposed" | grep -c "^tierckpt_verify_checked{job_id=\"$job\",node=\"a\"")" = 2 ]; }
verify_is_exported() { exposed=$(curl -sf "http://$exporter/metrics") && checked; }
ask a verify --metrics-textfile "$work/textfile/verify.a.prom" >"$work/said" || die "verify: $(cat "$work/said")"
promtool check metrics <"$work/textfile/verify.a.prom" >"$work/promtool" 2>&1 && [ ! -s "$work/promtool" ] || die "promtool on the metrics of verify: $(cat "$work/promtool")"
wait_for 60 verify_is_exported || die "node_exporter has no metrics of verify: $(tail -3 "$work/node_exporter.log")"
exported "tierckpt_operation_seconds{job_id=\"$job\",node=\"a\",operation=\"verify\"} 0" || die "verify is under way by its metrics"
exported "tierckpt_operation_seconds{job_id=\"$job\",node=\"a\",operation=\"drain\"}" || die "the agent's operations are not exported"
exported 'node_textfile_scrape_error 0' || die "node_exporter cannot read a file: $(tail -3 "$work/node_exporter.log")"

prometheus=127.0.0.1:$(free_port)
cat >"$work/prometheus.yml" <<CONFIG
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$ops_top/deploy/prometheus/tierckpt.rules.yml"]
scrape_configs:
  - job_name: tierckpt
    file_sd_configs: [{files: ["$work/targets.json"], refresh_interval: 1s}]
CONFIG
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="$prometheus" \
    --log.level=warn >"$work/prometheus.log" 2>&1 &
wait_for 60 has 'count(up{job="tierckpt"} == 1)' 2 || die "Prometheus does not scrape both agents: $(tail -5 "$work/prometheus.log")"
must_have 'sum(tierckpt_trainers)' 2
must_have 'sum(tierckpt_nodes{state="up"})' 2
python3 "$ops_top/tests/ops/dashboard_rules.py" "$ops_top/deploy/prometheus/dashboard.json" >"$work/dashboard.json"
# All queries of the dashboard run, and none matches one sample with several.
python3 -c 'import json, sys
for rule in json.load(open(sys.argv[1]))["groups"][0]["rules"]: print(rule["expr"])' "$work/dashboard.json" >"$work/expressions"
while IFS= read -r expression; do
    api query --data-urlencode "query=$expression" >/dev/null || die "the dashboard's query fails: $expression"
done <"$work/expressions"
must_fire '' 30

known_committed "$(query 'max(tierckpt_newest_version_step{tier="memory"})')"
kill_node b
must_have 'tierckpt_nodes{node="a",state="lost"}' 1
must_have 'up == 0' 0
must_fire 'TierckptNodeLost' 60
# After a minute also that the agent there does not answer.
must_fire 'TierckptAgentDown TierckptNodeLost' 120
exported "tierckpt_node_lost{job_id=\"$job\",node=\"a\",peer=\"b\"} 1" || die "the file of a does not name the lost node"

kill_trainers
train
targets
must_have 'count(up{job="tierckpt"} == 1)' 2
must_have 'sum(tierckpt_recoveries_total{result="restored"})' 1
must_fire '' 60
kill_trainers
