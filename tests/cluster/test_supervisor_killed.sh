#!/usr/bin/env bash
# A supervisor killed with -9 is replaced while the agent lives; after that the agent may die, too, and nothing is
# lost.
. "$(dirname "$0")/lib.sh" "$1"
begin 1
run_on a "0" --steps 100000 --step-ms 20 --wait-commit
wait_for 60 said 0 '^COMMITTED 4$' || die "no commit: $(out 0 | tail -3)"
moment
old=$(supervisor_pid a)
kill -9 "$old"
new_supervisor() { local k; k=$(supervisor_pid a); [ -n "$k" ] && [ "$k" != "$old" ]; }
wait_for 60 new_supervisor || die "no new supervisor"
wait_for 60 grep -q 'the new supervisor has every descriptor' "$work/run/test/a/agent.log" || die "nothing was parked again"
moment
agent=$(agent_pid a)
kill -9 "$agent"
back() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$agent" ]; }
wait_for 60 back || die "the new supervisor did not start the agent again"
kill_trainers
newest=$(grep -h '^COMMITTED' "$work"/out.1.* | awk '{ print $2 }' | sort -n | tail -1)
begin 1
run_on a "0" --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
