# The agents' memory as a stray write would find it. Sourced after lib.sh by tests that damage it.
# shellcheck shell=bash

# flip NODE: a byte, as the seed has it, of each slot of the agent's large segments, through its own descriptors; says how many
# segments that were.
flip() {
    fault "memory of node $1 damaged"
    python3 - "$(agent_pid "$1")" "$seed $1" <<'PY'
import os, random, sys
chance = random.Random(sys.argv[2])
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
            at = slot * (s.st_size // 3) + chance.randrange(300000)
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))
print(len(seen))
PY
}

# spoil NODE: a byte of every page of all slots of its agent; says how many segments that were.
spoil() {
    fault "all memory of node $1 damaged"
    python3 - "$(agent_pid "$1")" <<'PY'
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
        for at in range(100, s.st_size, 4096):
            byte = os.pread(f.fileno(), 1, at)
            os.pwrite(f.fileno(), bytes([byte[0] ^ 1]), at)
print(len(seen))
PY
}
