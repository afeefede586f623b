#!/usr/bin/env bash
# Trainers killed with -9 find their newest committed version in their own node's memory, bit for bit.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0 1" --twins 2 --steps 1000 --step-ms 20 --wait-commit
wait_for 60 said 0 '^COMMITTED ([89]|[1-9][0-9]+)$' || die "no commit: $(out 0 | tail -3)"
moment
kill_trainers
newest=$(grep -h '^COMMITTED' "$work"/out.1.* | awk '{ print $2 }' | sort -n | tail -1)
begin 2
run_on a "0 1" --twins 2 --steps 60 --wait-commit --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_step 0)" = "$(restored_step 1)" ] || die "ranks restored different steps"
[ "$(restored_from 0 local)" -gt 0 ] || die "rank 0 was not restored from local memory: $(out 0 | grep RESTORED)"
wait_for 60 no_agent a || die "the agent stayed though the job was done"
