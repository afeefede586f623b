#!/usr/bin/env bash
# A version that was restored max_restore_tries times and never followed by a commit is no longer restored; the older
# one on storage is used.
. "$(dirname "$0")/lib.sh" "$1"
excused="a version that was restored too often without a commit is given up"
settings=',"max_restore_tries":2'
mem_interval=0 storage_interval=4
begin 1
run_on a "0" --steps 4 --wait-commit --wait-drained
all_end
mem_interval=2 storage_interval=0
begin 1
run_on a "0" --steps 8 --wait-commit
all_end
mem_interval=8
for try in 1 2; do
    begin 1
    run_on a "0" --steps 100000 --step-ms 1000 # dies before its next save
    wait_for 60 said 0 '^STEP' || die "try $try does not run: $(out 0)"
    kill_trainers
    [ "$(restored_step 0)" = 8 ] || die "try $try restored $(restored_step 0) instead of 8"
done
mem_interval=2
begin 1
run_on a "0" --steps 12 --wait-commit --done
all_end
[ "$(restored_step 0)" = 4 ] || die "restored $(restored_step 0) instead of 4, the one before"
log_must_say a 60 'version .*\.8 was restored 2 times .* using the version before it'
