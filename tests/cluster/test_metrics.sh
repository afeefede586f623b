#!/usr/bin/env bash
# Metrics: both nodes serve them, they agree with the command and show a lost node; hostile scrapers hurt neither training nor
# agent; a port that is taken is reported while the job runs; the file stays when the agent is killed, and goes when it ends.
. "$(dirname "$0")/lib.sh" "$1"
command -v curl >/dev/null || skip "curl is not installed"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500,"version_timeout_ms":3000,"metrics_listen":":0"'
at() { ask "$1" --json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["metrics"]["at"])'; }
# scrape NODE: its page; value NODE NAME [LABELS]: one sample of it.
scrape() { curl -sf --max-time 20 "http://${address[$1]}/metrics"; }
value() { scrape "$1" | sed -nE "s/^tierckpt_$2\{job_id=\"$job\",node=\"$1\"${3:+,$3}\} (.*)$/\1/p"; }
is() { [ "$(value "$1" "$2" "$4")" = "$3" ]; }
must_be() { wait_for 60 is "$1" "$2" "$3" "${4:-}" || die "$2 of $1 is not $3 but '$(value "$1" "$2" "${4:-}")'"; }
# status_number NODE EXPRESSION
status_number() { ask "$1" --json status | python3 -c "import json, sys; s = json.load(sys.stdin); print($2)"; }
declare -A address=()

# Each node has a file of its own.
eval "$(declare -f node_json | sed '1s/node_json/plain_json/')"
node_json() {
    local settings="$settings,\"metrics_textfile\":\"$work/$1.prom\""
    plain_json "$1"
}

storage_interval=20
begin 2
run_on a 0 --steps 100000 --step-ms 20 --wait-commit
run_on b 1 --steps 100000 --step-ms 20 --wait-commit
wait_for 60 said 0 '^COMMITTED' && wait_for 60 said 1 '^COMMITTED' || die "no commit: $(out 0 | tail -3)"
for node in a b; do
    address[$node]=$(at $node)
    [[ ${address[$node]} == 127.0.0.1:* ]] || die "without a host, metrics of $node are at '${address[$node]}'"
    wait_for 60 scrape $node >/dev/null || die "no metrics of $node"
    must_be $node ranks 2
    must_be $node trainers 1
    must_be $node storage_good 1
    must_be $node nodes 1 'state="up"'
    must_be $node nodes 0 'state="lost"'
    ! scrape $node | grep -q '^tierckpt_node_lost{' || die "$node says that a node is lost"
done
must_be a coordinator 1
must_be b coordinator 0

in_file() { grep -q "^tierckpt_ranks{job_id=\"$job\",node=\"$1\"} 2$" "$work/$1.prom"; }
wait_for 60 in_file a && wait_for 60 in_file b || die "the files lack what is served"

# What both say is the same.
for pair in 'memory_used_bytes|s["memory"]["used_bytes"]' 'memory_limit_bytes|s["memory"]["cap_bytes"]' \
    'term|s["term"]' 'shards|s["shards"]' 'version_bytes|s["version_bytes"]' 'copies_missing|s["scrub"]["copies_missing"]'; do
    must_be a "${pair%%|*}" "$(status_number a "${pair#*|}")"
done
published() { [ -n "$(value a newest_version_step 'tier="storage"')" ]; }
wait_for 60 published || die "nothing is published by the metrics"
step=$(value a newest_version_step 'tier="memory"')
known_committed "$step"
[ "$step" -le "$(status_number a 's["committed"]["step"]')" ] || die "the metrics are ahead of the command"
[ "$(value a versions_total 'result="published"')" -ge 1 ] || die "a published version is not counted"
[ "$(value a transferred_bytes_total 'tier="peer",direction="out"')" -gt 0 ] || die "copies are not counted"
[ "$(value a transferred_bytes_total 'tier="storage",direction="out"')" -gt 0 ] || die "drains are not counted"
stalled() { [ "$(value a save_stall_seconds_count)" -ge 1 ]; }
wait_for 60 stalled || die "stalls of saves are not counted"

# Hostile scrapers on a: training goes on, the agent is the same, and it answers when they are gone.
agent=$(agent_pid a)
fault "hostile scrapers"
python3 "$suppressions/hostile_scrapers.py" "${address[a]}" "$seed" 60 >"$work/hostile" 2>&1 &
hostile=$!
more_commits a 5 60 || die "nothing commits beside hostile scrapers"
grep -q '^ready' "$work/hostile" || wait_for 60 grep -q '^ready' "$work/hostile" || die "no hostile scrapers: $(cat "$work/hostile")"
more_commits a 5 60 || die "nothing commits beside hostile scrapers"
scraped() { scrape a >/dev/null; }
wait_for 60 scraped || die "they keep an honest scraper out for ever"
builtin kill "$hostile"
wait "$hostile" 2>/dev/null
same_agent a "$agent" || die "the agent of a died of them"
wait_for 60 scraped || die "no metrics of a after them"

# A node is lost.
kill_node b
must_be a nodes 1 'state="lost"'
must_be a node_lost 1 'peer="b"'
before=$(value a newest_version_step 'tier="memory"')
in_file b || die "the file of a dead agent is gone: nothing would show that it is dead"
! scrape b >/dev/null || die "somebody serves metrics of a dead agent"
kill_trainers
settings=${settings/:0/${address[a]}} # a has this one
begin 2
run_on a 0 --steps 100000 --step-ms 20 --wait-commit
run_on b 1 --steps 100000 --step-ms 20 --wait-commit
wait_for 90 said 0 '^COMMITTED' && wait_for 90 said 1 '^COMMITTED' || die "no commit: $(out 0 | tail -3)"
[ "$(restored_step 0)" -ge "$before" ] || die "restored $(restored_step 0), but the metrics said that $before is committed"
# One of the two has the address now; the other one trains without, and says so.
trouble() { ask "$1" status 2>&1 | grep -q "^WARNING: metrics are not exported as configured: metrics_listen ${address[a]}: cannot listen: Address already in use"; }
one_in_trouble() { trouble a || trouble b; }
wait_for 60 one_in_trouble || die "nobody says that the address is taken: $(ask a status; ask b status)"
[ -n "$(at a)$(at b)" ] || die "nobody has the address"
kill_trainers
ask a stop --force >/dev/null || die "the job is not stopped"
no_files() { ! compgen -G "$work/*.prom*" >/dev/null; }
wait_for 60 no_files || die "agents that have ended leave files: $(ls "$work"/*.prom*)"
