#!/usr/bin/env bash
# Agents whose trainers do not come back bring what only memory has to storage when half of linger_s has passed, on all
# nodes. After their end the next start continues from there.
. "$(dirname "$0")/lib.sh" "$1"
linger_s=8
begin 4
run_on a "0 1" --steps 100000 --step-ms 20
run_on b "2 3" --steps 100000 --step-ms 20
wait_for 60 has_commits a 2 || die "no commit: $(out 0 | tail -3)"
first=$(agent_pid a) second=$(agent_pid b)
kill_trainers
asks() { logged a "$1" || logged b "$1"; } # whose drain the other one may know of before it asks itself
wait_for 60 asks 'no trainer has come back for half of linger_s' || die "no agent asks for a drain"
ended() { ! builtin kill -0 "$first" 2>/dev/null && ! builtin kill -0 "$second" 2>/dev/null; }
wait_for 60 ended || die "an agent has not ended"
grep -q "is only in memory, and this node" "$work/run/test/a/agent.log" && die "something was lost"
committed=$(sed -nE 's/.* version 1\.([0-9]+) is committed$/\1/p' "$work/run/test/a/agent.log" | tail -1)
begin 4
run_on a "0 1" --steps 3
run_on b "2 3" --steps 3
all_end
[ "$(restored_step 0)" = "$committed" ] || die "restored $(restored_step 0), and step $committed was committed"
[ "$(restored_from 0 storage)" -gt 0 ] || die "not from storage"
