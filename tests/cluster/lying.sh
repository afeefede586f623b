# Shared by the tests whose save_dir lies on the file system of tests/storage_faults, which is truthful until `lie`.
# shellcheck shell=bash
needs_root
lying=$build/tests/storage_faults/lying_fs
[ -x "$lying" ] || skip "this build has no lying_fs (libfuse3)"
mkdir "$work/backing"
truncate -s 256 "$work/control"
serve() {
    "$lying" "$work/backing" "$work/control" "$work/save" >/dev/null 2>>"$work/lying.log" </dev/null &
    server=$!
    wait_for 20 mountpoint -q "$work/save"
}
serve || skip "no FUSE here"
at_end() { umount -l "$work/save"; }
# lie PER_1000 [KIND [ONLY]]: so many of 1000 calls, on paths with ONLY in them, get this lie of control.h.
lie() {
    python3 - "$work/control" "$@" <<'PYTHON'
import struct, sys
kinds = ("EIO", "ESTALE", "EMFILE", "EACCES", "ENOSPC", "EDQUOT", "ETIMEDOUT", "SHORT", "OLD", "HANG", "FLIP", "EROFS")
control, per_1000, *rest = sys.argv[1:]
kind, only = [*rest, *("EIO", "")[len(rest):]]
with open(control, "r+b") as file:
    file.write(struct.pack("<QIIII64s64s", 1, int(per_1000), 1 << kinds.index(kind), 0x1ff, 0, only.encode(), b""))
PYTHON
}
