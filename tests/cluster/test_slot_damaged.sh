#!/usr/bin/env bash
# Bytes are flipped in the memory of one node, and nothing has noticed that yet: a restore detects them and uses the
# other node's copy.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
needs_root
settings=',"scrub_interval_s":0'
begin 2
run_on a "0" --steps 20 --wait-commit
run_on b "1" --steps 20 --wait-commit
all_end
ask a verify memory >/dev/null || die "damage before any was done: $(ask a verify memory)"

[ "$(flip a)" -gt 0 ] || skip "no memfd of the agent can be written here"
begin 2
run_on a "0" --steps 24 --wait-commit --done
run_on b "1" --steps 24 --wait-commit --done
all_end
[ "$(restored_step 0)" = 20 ] || die "restored $(restored_step 0) instead of 20"
[ "$(restored_from 0 peer)" -gt 0 ] || die "not from the peer: $(out 0 | grep RESTORED)"
log_must_say a 60 'could not be fetched'
