#!/usr/bin/env bash
# Storage hung while a term was claimed, and answers again: status is good from then on, although nothing is published, for
# no step was to come to storage.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
lying=$build/tests/storage_faults/lying_fs
[ -x "$lying" ] || skip "this build has no lying_fs (libfuse3)"
mkdir "$work/backing"
mount -t tmpfs tmpfs "$work/backing" 2>/dev/null || skip "no tmpfs can be mounted here" # a disk may take longer than is allowed
truncate -s 256 "$work/control"
"$lying" "$work/backing" "$work/control" "$work/save" >/dev/null 2>"$work/lying.log" </dev/null &
server=$!
at_end() { builtin kill -CONT "$server"; umount -l "$work/save" "$work/backing" 2>/dev/null; }
wait_for 20 mountpoint -q "$work/save" || skip "no FUSE here"
settings=',"storage_timeout_ms":1000'
begin 1
run_on a 0 --steps 4
all_end
fault "all of storage hangs"
kill -STOP "$server"
begin 1
run_on a 0 --steps 6
wait "${trainers[@]}" && die "a term without a claim"
must_say 0 "^ERROR attach: .*the claim of a term has not moved for 1000 ms"
! ask a status >"$work/said" || die "status is good while storage hangs: $(cat "$work/said")"
kill -CONT "$server"
good() { ask a status >"$work/said"; }
wait_for 60 good || die "storage answers again, and status stays bad: $(cat "$work/said")"
begin 1
run_on a 0 --steps 6
all_end
