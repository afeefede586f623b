#!/usr/bin/env bash
# A node whose header pages are damaged just before its agent dies recovers. With one page of each slot damaged, the
# restarted agent uses the other one; with both, the slots are lost, and their copies are fetched again from the other
# node.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
settings=',"scrub_interval_s":0' # else it repairs them first
begin 2
run_on a "0" --steps 20 --wait-commit
run_on b "1" --steps 20 --wait-commit
all_end

# damage PID PAGES: flips a byte of these header pages ("newest" or "both") of every slot, through the supervisor's own
# descriptors; says how many slots that were.
damage() {
    python3 - "$1" "$2" <<'PY'
import os, struct, sys
fds = "/proc/%s/fd" % sys.argv[1]
seen, slots = set(), 0
for name in os.listdir(fds):
    path = os.path.join(fds, name)
    if not os.readlink(path).startswith("/memfd:tierckpt"):
        continue
    s = os.stat(path)
    if s.st_ino in seen:
        continue
    seen.add(s.st_ino)
    with open(path, "r+b", buffering=0) as f:
        head = f.read(s.st_size) if s.st_size < 1 << 20 else b""
        pages = [i for i in range(0, len(head), 4096) if head[i:i + 8] == b"TckSlot1"]
        by_slot = {}
        for at in pages:
            job = struct.unpack_from("<H", head, at + 24)[0]
            slot = struct.unpack_from("<I", head, at + 26 + job + 16)[0]
            by_slot.setdefault(slot, []).append((struct.unpack_from("<Q", head, at + 16)[0], at))
        for both in by_slot.values():
            both.sort(reverse=True)
            slots += 1
            for _, at in both if sys.argv[2] == "both" else both[:1]:
                f.seek(at + 30)
                f.write(bytes([head[at + 30] ^ 16]))
print(slots)
PY
}
# whole NODE: it knows that 20 is committed, and has all its copies of it.
whole() {
    ask "$1" --json status 2>/dev/null | python3 -c 'import json, sys
s = json.load(sys.stdin)
sys.exit(s["committed"].get("step") != 20 or s["scrub"]["copies_missing"] != 0)' 2>/dev/null
}
restarted() { local pid; pid=$(agent_pid a); [ -n "$pid" ] && [ "$pid" != "$1" ] && ask a --json status >/dev/null 2>&1; }

for pages in newest both; do
    moment
    pid=$(agent_pid a)
    [ "$(damage "$pid" $pages)" -gt 0 ] || skip "no memfd of the agent can be written here"
    kill -9 "$pid"
    wait_for 60 restarted "$pid" || die "$pages: the agent of a does not come back"
    wait_for 60 whole a || die "$pages: copies are missing: $(ask a --json status)"
    ask a verify memory >"$work/verify" || die "$pages: $(cat "$work/verify")"
done
logged a 'was fetched from a (peer|twin) b' || die "nothing was fetched again"

kill_node b
begin 2
run_on a "0" --steps 24 --wait-commit --done
run_on c "1" --steps 24 --wait-commit --done
all_end
[ "$(restored_step 0)" = 20 ] || die "restored $(restored_step 0) instead of 20"
