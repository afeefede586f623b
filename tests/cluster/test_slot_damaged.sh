#!/usr/bin/env bash
# Bytes flipped in the memory of one node, which nothing has noticed yet: a restore finds them and uses the other node's
# copy.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
settings=',"scrub_interval_s":0'
begin 2
run_on a "0" --steps 20 --wait-commit
run_on b "1" --steps 20 --wait-commit
all_end
ask a verify memory >/dev/null || die "damage before any was done: $(ask a verify memory)"

# flip PID: bytes in the middle of each slot of the agent's largest segments, through its own descriptors.
flip() {
    python3 - "$1" <<'PY'
import os, sys
fds = "/proc/%s/fd" % sys.argv[1]
seen = set()
for name in os.listdir(fds):
    path = os.path.join(fds, name)
    if os.readlink(path) != "/memfd:tierckpt (deleted)":
        continue
    s = os.stat(path)
    if s.st_size < 1 << 20 or s.st_ino in seen:
        continue  # the small ones are the headers
    seen.add(s.st_ino)
    with open(path, "r+b", buffering=0) as f:
        for slot in range(3):
            at = slot * (s.st_size // 3) + 300000
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))
print(len(seen))
PY
}
[ "$(flip "$(agent_pid a)")" -gt 0 ] || skip "no memfd of the agent can be written here"
begin 2
run_on a "0" --steps 24 --wait-commit --done
run_on b "1" --steps 24 --wait-commit --done
all_end
[ "$(restored_step 0)" = 20 ] || die "restored $(restored_step 0) instead of 20"
[ "$(restored_from 0 peer)" -gt 0 ] || die "not from the peer: $(out 0 | grep RESTORED)"
logged a 'could not be had' || die "the log does not name the damaged copy"
