#!/usr/bin/env bash
# What a coordinator told of its trouble with storage is over when its node is lost: status of the node that leads the next
# term is good, although nothing was published since.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
lying=$build/tests/storage_faults/lying_fs
[ -x "$lying" ] || skip "this build has no lying_fs (libfuse3)"
mkdir "$work/backing"
truncate -s 256 "$work/control"
"$lying" "$work/backing" "$work/control" "$work/save" >/dev/null 2>"$work/lying.log" </dev/null &
wait_for 20 mountpoint -q "$work/save" || skip "no FUSE here"
at_end() { umount -l "$work/save"; }
# moves_fail PER_1000: renames in the stage end with EIO, but not those of shards, so only the coordinator has trouble.
moves_fail() {
    python3 - "$work/control" "$1" <<'PYTHON'
import struct, sys
with open(sys.argv[1], "r+b") as control:
    control.write(struct.pack("<QIIII64s64s", 1, int(sys.argv[2]), 1, 1 << 6, 0, b"stage/", b"shard-"))
PYTHON
}
storage_interval=4
moves_fail 1000
begin 2
run_on a 0 --steps 100000 --step-ms 20 --lockstep
run_on b 1 --steps 100000 --step-ms 20 --lockstep
bad() { ! ask b status >"$work/said" 2>&1 && grep -q 'storage fails since' "$work/said"; }
wait_for 60 bad || die "b is not told of the coordinator's trouble: $(cat "$work/said")"
! logged b 'storage.*does not answer|drain of version .* failed' || die "b has trouble of its own: $(tail -5 "$(agent_log b)")"
kill_trainers
kill_node a
moves_fail 0
storage_interval=0
begin 2
run_on b "0 1" --steps 100000 --step-ms 20 --lockstep
more_commits b 4 60 || die "no commits in the next term: $(out 0 | tail -3)"
ask b status >"$work/said"
! grep -q 'storage fails since' "$work/said" || die "the lost coordinator's trouble stays: $(cat "$work/said")"
