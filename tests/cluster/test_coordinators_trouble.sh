#!/usr/bin/env bash
# Trouble with storage that a coordinator reported is forgotten when its node is lost: status of the node that leads
# the next term is good, although nothing was published since.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=4
lie 1000 EIO stage/ shard- move # not the moves of shards, so only the coordinator has trouble
begin 2
run_on a 0 --steps 100000 --step-ms 20 --lockstep
run_on b 1 --steps 100000 --step-ms 20 --lockstep
bad() { ! ask b status >"$work/said" 2>&1 && grep -q 'storage has been failing since' "$work/said"; }
wait_for 60 bad || die "b does not know the coordinator's trouble: $(cat "$work/said")"
! logged b 'storage.*does not answer|drain of version .* failed' || die "b has trouble of its own: $(tail -5 "$(agent_log b)")"
kill_trainers
kill_node a
lie 0
storage_interval=0
begin 2
run_on b "0 1" --steps 100000 --step-ms 20 --lockstep
more_commits b 4 60 || die "no commits in the next term: $(out 0 | tail -3)"
ask b status >"$work/said"
! grep -q 'storage has been failing since' "$work/said" || die "the lost coordinator's trouble stays: $(cat "$work/said")"
