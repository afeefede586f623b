#!/usr/bin/env bash
# A node whose agent and supervisor die at once is recovered from the other node, while its trainer lives on. The
# restart finds everything on the other node and makes a second copy again, after which the other node may be lost.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
moment
newest=$(newest_committed a)
step_of() { out 1 | sed -nE 's/^STEP ([0-9]+)$/\1/p' | tail -1; }
kill_node b
before=$(step_of)
trains_on() { [ "$(step_of)" -gt $((before + 20)) ]; }
wait_for 60 trains_on || die "the trainer stands still without its agent: $(out 1 | tail -3)"
builtin kill -0 "${trainers[1]}" || die "the trainer died with its agent"
kill_trainers
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
log_must_say a 60 "$protected"
wait_for 60 said 1 '^RESTORED' || die "rank 1 does not restore: $(out 1 | tail -3)"
[ "$(restored_step 1)" -ge "$newest" ] || die "restored $(restored_step 1), but $newest was committed"
[ "$(restored_from 1 peer)" -gt 0 ] || die "not from the peer: $(out 1 | grep RESTORED)"
moment
newest=$(newest_committed a)
kill_node a
kill_trainers
begin 2
run_on b "1" --steps $((newest + 20)) --done
run_on c "0" --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_from 0 storage)" = 0 ] || die "storage was used: $(out 0 | grep RESTORED)"
