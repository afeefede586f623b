#!/usr/bin/env bash
# save_dir is on XFS, and a twentieth of each shard changes from step to step: published versions share what did not
# change. One of the agents is killed in the middle of drains; its next two versions are written as a whole, and the one after
# those shares again. All versions that are kept are whole, and when both nodes are lost the newest is restored bit by bit.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
command -v mkfs.xfs >/dev/null || skip "needs mkfs.xfs (Debian: xfsprogs)"
truncate -s 2G "$work/disk"
mkfs.xfs -q -m reflink=1 "$work/disk"
mount -o loop "$work/disk" "$work/save" 2>/dev/null || skip "XFS cannot be mounted here"
at_end() { umount -l "$work/save"; }
mem_interval=1 storage_interval=4
settings=',"scrub_interval_s":0,"target_inflation":0,"max_ckpt_num":3'
count=$((1 << 22)) # elements of 8 bytes in each of two tensors: 64 MiB in 17 chunks
train() { run_on "$1" "$2" --count $count --changes $((count / 20)) --lockstep "${@:3}"; }
# of NODE MEMBER...: a member of its status.
of() { ask "$1" --json status | python3 -c 'import functools, json, sys; print(functools.reduce(lambda of, key: of[key], sys.argv[1:], json.load(sys.stdin)))' "${@:2}"; }
published() { ls -d "$work/save/$job"/v* | wc -l; }

begin 2
train a 0 --steps 24 --wait-commit --wait-drained
train b 1 --steps 24 --wait-commit --wait-drained
all_end
for node in a b; do
    [ "$(of $node clones state)" = work ] || die "$node: $(of $node clones)"
    written=$(of $node transfer stored_bytes) shared=$(of $node transfer shared_bytes)
    [ "$shared" -gt $((written / 2)) ] || die "$node shared $shared bytes and has written $written in six versions"
    logged $node 'that did not change since the last published version are shared' || die "the log of $node does not say it"
    ! ask $node status | grep 'as a whole' || die "status of $node"
done
ask a doctor | grep -q 'unchanged chunks.*files there can share blocks' || die "doctor: $(ask a doctor)"
ask a verify published >"$work/said" || die "verify: $(cat "$work/said")"

begin 2
train a 0 --steps 100000 --step-ms 100
train b 1 --steps 100000 --step-ms 100
for round in 1 2 3; do
    draining() { [ "$(grep -c 'draining version' "$(agent_log a)")" -gt "$1" ]; }
    wait_for 60 draining "$(grep -c 'draining version' "$(agent_log a)")" || die "nothing is drained"
    moment 100
    kill -9 "$(agent_pid a)"
    more() { [ "$(grep -c 'is published' "$(agent_log a)")" -gt $(($1 + 3)) ]; }
    wait_for 120 more "$(grep -c 'is published' "$(agent_log a)")" || die "round $round: nothing is published any more"
done
shares() { [ "$(of a transfer shared_bytes)" -gt 0 ]; }
wait_for 60 shares || die "the new agent of a shares nothing"
kill_trainers
kill_node a
kill_node b
[ "$(published)" -ge 2 ] || die "only $(published) versions are left"
begin 2
train c 0 --steps 1 --done
train d 1 --steps 1 --done
all_end
[ "$(restored_step 0)" -ge 24 ] || die "restored $(restored_step 0)"
[ "$(restored_from 0 storage)" -gt 0 ] || die "not from storage: $(out 0 | grep RESTORED)"
ask c verify published >"$work/said" || die "verify: $(cat "$work/said")"
