#!/usr/bin/env bash
# Two jobs run at the same time on the same nodes and below the same directories: each restores its own versions, and
# the end of one does not affect the other.
. "$(dirname "$0")/lib.sh" "$1"
storage_interval=4
job=one
begin 1
run_on a "0" --steps 8 --wait-commit --wait-drained
one=("${trainers[@]}")
job=two
begin 1
run_on a "0" --count 1000 --steps 12 --wait-commit --wait-drained
all_end
trainers=("${one[@]}")
launch=1 all_end
begin 1
run_on a "0" --count 1000 --steps 14 --done
all_end
[ "$(restored_step 0)" = 12 ] || die "job two restored $(restored_step 0) instead of 12"
wait_for 60 no_agent a || die "the agent of job two stays"
job=one
[ -n "$(agent_pid a)" ] || die "the agent of job one went with job two"
begin 1
run_on a "0" --steps 10 --done
all_end
[ "$(restored_step 0)" = 8 ] || die "job one restored $(restored_step 0) instead of 8"
[ "$(restored_from 0 local)" -gt 0 ] || die "job one was not restored from memory: $(out 0 | grep RESTORED)"
