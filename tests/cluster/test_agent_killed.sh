#!/usr/bin/env bash
# An agent that is repeatedly killed with -9 comes back with all sealed slots; training and commits continue.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0 1" --twins 2 --steps 100000 --step-ms 20
wait_for 60 grep -q 'is committed' "$work/run/test/a/agent.log" || die "no commit"
for round in 1 2 3; do
    moment
    old=$(agent_pid a)
    kill -9 "$old"
    new_agent() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$old" ]; }
    wait_for 60 new_agent || die "round $round: the agent did not come back"
    before=$(grep -c 'is committed' "$work/run/test/a/agent.log")
    more_commits() { [ "$(grep -c 'is committed' "$work/run/test/a/agent.log")" -gt $((before + 2)) ]; }
    wait_for 60 more_commits || die "round $round: no commit after the agent came back"
done
moment
newest=$(grep 'is committed' "$work/run/test/a/agent.log" | sed -nE 's/.*version ([0-9]+)\.([0-9]+) is committed/\2/p' | sort -n | tail -1)
kill -9 "$(agent_pid a)"
kill_trainers
begin 2
run_on a "0 1" --twins 2 --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
