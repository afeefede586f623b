#!/usr/bin/env bash
# While all of storage hangs, a job can be started as often as terms were reserved for that; the next start fails and
# says why. Then storage answers again, and status is good although nothing is published, because no step was meant for
# storage.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
settings=',"storage_timeout_ms":1000'
begin 1
run_on a 0 --steps 4 --wait-commit
all_end
wait_for 60 has_reserved a 4 || die "no four terms are reserved: $(ask a --json status)"
fault "all of storage hangs"
stop_serving
for steps in 6 8 10 12; do
    begin 1
    run_on a 0 --steps $steps --wait-commit
    all_end
    [ "$(restored_step 0)" = $((steps - 2)) ] || die "restored $(restored_step 0) instead of $((steps - 2))"
done
begin 1
run_on a 0 --steps 14
none_ends_well "a fifth start without storage, for which no term was reserved"
must_say 0 "^ERROR attach: .*the claim of a term has made no progress for 1000 ms .storage_timeout_ms.; without storage, none of the agents"
! ask a status >"$work/said" || die "status is good while storage hangs: $(cat "$work/said")"
kill -CONT "$server"
good() { ask a status >"$work/said"; }
wait_for 60 good || die "storage answers again, and status stays bad: $(cat "$work/said")"
begin 1
run_on a 0 --steps 14 --wait-commit
all_end
[ "$(restored_step 0)" = 12 ] || die "restored $(restored_step 0) instead of 12"
