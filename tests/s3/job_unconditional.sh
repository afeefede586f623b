#!/usr/bin/env bash
# A server that ignores conditions cannot decide between two starts: a job of two nodes is refused with that reason and
# with what to do, and a job of one node works.
. "$(dirname "$0")/jobs.sh" "$1"
begin 2
run_on a 0 --steps 8
run_on b 1 --steps 8
none_ends_well "a job of two nodes starts on a server that ignores conditions"
for rank in 0 1; do
    must_say $rank "^ERROR .*$save_dir ignores the condition .*If-None-Match.*: use a server that knows it, or a directory"
done
ask a doctor >"$work/said"
grep -q 'note *two starts *the server ignores the condition' "$work/said" || die "doctor says: $(cat "$work/said")"
job=alone
begin 1
run_on c 0 --steps 8 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 8$'
all_whole c
kill_node c
begin 1
run_on c 0 --steps 12 --wait-commit --wait-drained
all_end
[ "$(restored_step 0)" = 8 ] || die "restored $(restored_step 0) instead of 8"
[ "$(restored_from 0 storage)" -gt 0 ] || die "not from the bucket"
ask c forget >"$work/said" 2>&1 && die "forget does not ask whether a start is under way"
grep -q -- '--force' "$work/said" || die "forget says: $(cat "$work/said")"
no_secret
