#!/usr/bin/env bash
# A rank restores again after its node's copy was damaged and before the version has all its copies again: no node can
# supply that shard in this term, which is noticed within a bounded time, and another term gets it from storage.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
"$bin/tierckptd" --failpoints >/dev/null 2>&1 || skip "built without failpoints: -DTCK_FAILPOINTS=ON"
mem_interval=6 storage_interval=6
settings=',"scrub_interval_s":1,"peer_timeout_ms":60000,"restore_spread_timeout_ms":500'
newest=18446744073709551615 # TCK_NEWEST
options=(--count $((1 << 22))) # so that rank 1 has asked before the version can be read
# b, new, stands still when it is to hold what a owns: its second fetch.
run_both() {
    begin 2
    run_on a 0 "${options[@]}" "$@"
    TIERCKPT_FAILPOINTS="fetch.slot_given=sleep:15000@2" run_on b 1 "${options[@]}" "$@"
}
restored() { [ "$(out "$1" | grep -c '^RESTORED')" = "$2" ]; }
both_restored() { restored 0 "$1" && restored 1 "$1"; }
protections() { grep -c 'has all its copies again' "$(agent_log a)"; }
# b is lost, and its successor lacks a copy when trainers have read the version, and have two steps until they restore
# it again. Else that successor is lost, too.
lacks_a_copy() {
    local before
    before=$(protections)
    kill_node b
    run_both --steps 8 --step-ms 3000 --back-to $newest
    wait_for 60 both_restored 1 || die "rank 0: $(out 0 | tail -3), rank 1: $(out 1 | tail -3)"
    [ "$(protections)" = "$before" ] || { kill_trainers; return 1; }
}

run_both --steps 6 --wait-commit
all_end
log_must_say a 60 '1\.6 is published'
lacks_a_copy || lacks_a_copy || lacks_a_copy || die "the agents were faster than the ranks each time"
[ "$(spoil a)" -gt 0 ] || skip "no memfd of the agent can be written here"
log_must_say a 60 'a copy in memory is damaged'
terms=$(grep -c 'joined term' "$(agent_log a)")
wait_for 90 both_restored 2 || die "rank 0: $(out 0 | tail -3), rank 1: $(out 1 | tail -3)"
kill_trainers
[ "$(restored_step 0 | tail -1)" = 6 ] || die "rank 0 restored $(restored_step 0)"
[ "$(restored_from 0 storage | tail -1)" -gt 0 ] || die "rank 0 got nothing from storage: $(out 0 | grep RESTORED)"
[ "$(grep -c 'joined term' "$(agent_log a)")" -gt "$terms" ] || die "no other term"
for rank in 0 1; do ! said $rank '^WRONG' || die "rank $rank: $(out $rank | grep WRONG)"; done
