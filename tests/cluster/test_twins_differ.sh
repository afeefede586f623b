#!/usr/bin/env bash
# A bit that differs between twins is reported once, with shard, version and nodes; if devices compute the digests,
# before the bytes have reached any slot.
. "$(dirname "$0")/lib.sh" "$1"
trainer=$build/tests/cluster/cluster_on_device
[ -x "$trainer" ] || skip "there is no stand-in for CUDA in this build"
differ='twins differ: shard [0-9a-f]{32} of version [0-9]+'
divergences() { ask a status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["twin_divergences"])'; }
# train SPOILED-RANK OPTIONS...: five steps, rank 1 or none wrong at the third.
train() {
    local spoiled=$1
    shift
    begin 2
    run_on a "0" --steps 5 "$@"
    run_on b "1" --steps 5 "$@" $([ "$spoiled" = none ] || echo --spoil 3)
}

settings=',"digest":"device"'
train none
all_end
! logged a "$differ" || die "twins that agree are reported: $(grep "$differ" "$(agent_log a)")"

job=early
train 1 --hold 3
for rank in 0 1; do wait_for 60 said $rank '^HELD' || die "rank $rank does not come to step 3: $(out $rank)"; done
log_must_say a 60 "$differ\.3 on node [ab] does not match that on node [ab]"
[ "$(newest_committed a)" = 2 ] || die "step $(newest_committed a) is committed, though no byte has arrived"
touch "$work/oob.$launch/go"
for rank in 0 1; do wait_for 60 said $rank '^COMMITTED 5' || die "rank $rank: $(out $rank)"; done
all_end
[ "$(grep -cE "$differ" "$(agent_log a)")" = 1 ] || die "said more than once: $(grep -E "$differ" "$(agent_log a)")"
[ "$(divergences)" = 1 ] || die "status counts $(divergences) divergences"

# Without digests of the device those of the slots are compared.
job=late settings=
train 1
all_end
log_must_say a 60 "$differ\.3 on node [ab] does not match that on node [ab]"
[ "$(grep -cE "$differ" "$(agent_log a)")" = 1 ] || die "said more than once: $(grep -E "$differ" "$(agent_log a)")"
