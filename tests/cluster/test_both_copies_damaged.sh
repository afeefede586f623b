#!/usr/bin/env bash
# Damage in both copies that are in memory is detected, and the newest published version is restored instead. The log
# of each rank or of its agent names the copies that could not be used.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
needs_root
settings=',"scrub_interval_s":0'
storage_interval=10
excused="both copies of a version were damaged: newest published"
begin 2
run_on a "0" --steps 10 --wait-commit --wait-drained
run_on b "1" --steps 10 --wait-commit --wait-drained
all_end
storage_interval=0
begin 2
run_on a "0" --steps 16 --wait-commit
run_on b "1" --steps 16 --wait-commit
all_end
must_say 0 '^COMMITTED 16$'
for node in a b; do [ "$(flip $node)" -gt 0 ] || skip "no memfd of the agent can be written here"; done
begin 2
run_on a "0" --steps 20 --wait-commit --done
run_on b "1" --steps 20 --wait-commit --done
all_end
for rank in 0 1; do
    [ "$(restored_step $rank)" = 10 ] || die "rank $rank restored $(restored_step $rank) instead of 10"
    [ "$(restored_from $rank storage)" -gt 0 ] || die "not from storage: $(out $rank | grep RESTORED)"
done
both_named() { [ "$(cat "$(agent_log a)" "$(agent_log b)" | grep -c 'could not be fetched')" -ge 2 ]; }
wait_for 60 both_named || die "the logs do not name both damaged copies"
