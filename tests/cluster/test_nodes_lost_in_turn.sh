#!/usr/bin/env bash
# Node a dies, its shards are copied again to b and c, and then b dies at once: nothing committed is lost.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 20 --wait-commit
run_on b "1" --steps 20 --wait-commit
all_end
moment
kill_node a
begin 2
run_on b "0" --steps 100000 --step-ms 20 --lockstep
run_on c "1" --steps 100000 --step-ms 20 --lockstep
log_must_say b 60 "$protected"
moment
kill_node b
kill_trainers
begin 2
run_on c "0" --steps 40 --wait-commit --done
run_on d "1" --steps 40 --wait-commit --done
all_end
[ "$(restored_step 0)" -ge 20 ] || die "restored $(restored_step 0), but 20 was committed"
[ "$(restored_from 0 storage)" = 0 ] || die "storage was used: $(out 0 | grep RESTORED)"
