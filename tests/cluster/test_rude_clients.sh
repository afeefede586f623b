#!/usr/bin/env bash
# Clients that break every rule of the agent's socket get an answer or are cut off; the agent and its trainers
# continue.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0 1" --twins 2 --steps 100000 --step-ms 20
wait_for 60 grep -q 'is committed' "$work/run/test/a/agent.log" || die "no commit"
agent=$(agent_pid a)
for round in 1 2; do
    moment
    fault "rude clients"
    "$build/tests/cluster/cluster_rude" "$work/run/test/a/agent.sock" test || die "round $round"
done
two_trainers() { [ "$(ask a --json status | grep -c '"rank"')" = 2 ]; }
wait_for 60 two_trainers || die "a trainer's end is not noticed: $(ask a status)"
before=$(grep -c 'is committed' "$work/run/test/a/agent.log")
more_commits() { [ "$(grep -c 'is committed' "$work/run/test/a/agent.log")" -gt $((before + 2)) ]; }
wait_for 60 more_commits || die "no commit after the rude clients"
[ "$(agent_pid a)" = "$agent" ] || die "the agent died"
grep -q 'malformed HELLO' "$work/run/test/a/agent.log" || die "the agent did not notice"
"$bin/tierckptd" --config "$work/run/test/a/config.json" >"$work/out.second" 2>&1 || die "a second agent: status $?"
grep -q 'already serves node a' "$work/out.second" || die "a second agent said: $(cat "$work/out.second")"
[ "$(agent_pid a)" = "$agent" ] || die "the agent died of a second one"
