# Shared by the tests whose save_dir, or with lying_at another directory, is on the file system of tests/storage_faults,
# which behaves correctly until `lie`. Its files are in $work/backing, in memory, because a disk that
# other programs use may block for longer than storage_timeout_ms.
# shellcheck shell=bash
needs_root
lying=$build/tests/storage_faults/lying_fs
[ -x "$lying" ] || skip "this build has no lying_fs (libfuse3)"
lying_at=${lying_at:-$work/save}
mkdir -p "$work/backing" "$lying_at"
mount -t tmpfs tmpfs "$work/backing" 2>/dev/null || skip "no tmpfs can be mounted here"
truncate -s 256 "$work/control"
serve() {
    "$lying" "$work/backing" "$work/control" "$lying_at" >/dev/null 2>>"$work/lying.log" </dev/null &
    server=$!
    wait_for 60 mountpoint -q "$lying_at"
}
# Storage hangs from here on: no thread of it runs, so that no call that is under way is still answered.
stop_serving() {
    kill -STOP "$server"
    wait_for 60 all_stopped && kill -0 "$server" || die "the file system does not stop"
}
all_stopped() { ! sed -E 's/.*\) ([A-Z]).*/\1/' /proc/"$server"/task/*/stat | grep -qv T; }
mounts=("$lying_at" "$work/backing")
at_end() { umount -l "${mounts[@]}" 2>/dev/null; }
serve || skip "no FUSE here"
# lie PER_1000 [KIND [ONLY [SPARED [CALL,... [HANG_MS]]]]]: so many of 1000 calls of these classes, on paths that have ONLY
# in them and not SPARED, get this lie. "" and what is left out: EIO, all paths, none, all classes (control.h has the names).
lie() { python3 "$suppressions/../storage_faults/lying.py" "$work/control" "$@"; }
