#!/usr/bin/env bash
# Runs that restore, save nothing and end well, as evaluations do, do not count against the version. Only those that
# die do.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"max_restore_tries":2'
storage_interval=4
begin 2
run_on a "0" --steps 4 --wait-commit --wait-drained
run_on b "1" --steps 4 --wait-commit --wait-drained
all_end
begin 2
run_on a "0" --steps 8 --wait-commit --wait-drained --done
run_on b "1" --steps 8 --wait-commit --wait-drained --done
all_end
for try in 1 2 3 4; do
    begin 2
    run_on a "0" --steps 8 --done
    run_on b "1" --steps 8 --done
    all_end
    [ "$(restored_step 0)" = 8 ] || die "run $try restored $(restored_step 0) instead of 8"
done
! logged a 'using the version before it' ||
    die "the version is held to kill the job: $(grep 'using the version before it' "$(agent_log a)")"
