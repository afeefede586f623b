# Damages the agents' memory as a stray write would. Sourced after lib.sh.
# shellcheck shell=bash

# damage NODE SEED [PLACE]: changes, through the agent's own descriptors, one byte of each slot of its large segments, at
# that place or chosen by the seed, or without a seed one byte of every page; prints the number of segments.
damage() {
    fault "memory of node $1 damaged"
    python3 - "$(agent_pid "$1")" "$2" "${3:-}" <<'PY'
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
    places = range(100, s.st_size, 4096)
    if sys.argv[2]:
        places = [slot * (s.st_size // 3) + chance.randrange(300000) for slot in range(3)]
    if sys.argv[3]:
        places = [slot * (s.st_size // 3) + int(sys.argv[3]) for slot in range(3)]
    with open(path, "r+b", buffering=0) as f:
        for at in places:
            os.pwrite(f.fileno(), bytes([os.pread(f.fileno(), 1, at)[0] ^ 1]), at)
print(len(seen))
PY
}
flip() { damage "$1" "$seed $1"; }
spoil() { damage "$1" ""; }
spoil_at() { damage "$1" "" "$2"; } # NODE PLACE
