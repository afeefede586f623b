#!/usr/bin/env bash
# Records that change right after the save call are saved as they were in it, while the agent that the call asks for slots
# is killed with -9 again and again.
. "$(dirname "$0")/lib.sh" "$1"
begin 1
run_on a "0" --eager --count 1048576 --steps 100000 --step-ms 20 # 8 MiB: straight into the slots
commits() { grep -c 'is committed' "$work/run/test/a/agent.log"; }
wait_for 60 grep -q 'is committed' "$work/run/test/a/agent.log" || die "no commit"
for round in 1 2 3 4 5; do
    moment
    old=$(agent_pid a)
    before=$(commits)
    kill -9 "$old"
    more_commits() { [ "$(commits)" -gt $((before + 2)) ]; }
    wait_for 60 more_commits || die "round $round: no commit after the agent came back"
done
kill -9 "$(agent_pid a)"
kill_trainers
newest=$(sed -nE 's/.*version ([0-9]+)\.([0-9]+) is committed.*/\2/p' "$work/run/test/a/agent.log" | sort -n | tail -1)
begin 1
run_on a "0" --eager --count 1048576 --steps $((newest + 10)) --step-ms 20 --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
