#!/usr/bin/env bash
# The catalog is only a hint: whatever happens to it while the agent is down (garbage, a flipped bit in its log, some
# or all of its files missing, a lock of another process, a full disk), the same version is restored from memory.
. "$(dirname "$0")/lib.sh" "$1"
small=$work/small
settings=",\"catalog_dir\":\"$small/catalog\""
mkdir "$small"
at_end() { umount -l "$small" 2>/dev/null; } # a process that was killed may not be gone yet
with_room=no
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=64m none "$small" 2>/dev/null; then
    with_room=yes
else
    echo "no small file system here: a full one is left out"
fi
catalog=$small/catalog
steps=8
begin 2
run_on a "0 1" --steps $steps --wait-commit
all_end

with_garbage() {
    local file
    for file in "$catalog"/MANIFEST-* "$catalog"/*.log "$catalog"/CURRENT; do head -c 4096 /dev/urandom >"$file"; done
}
with_a_bit_changed() { # in the middle of its write-ahead log
    python3 - "$catalog"/*.log <<'PY'
import os, sys
log = max(sys.argv[1:], key=os.path.getsize)
with open(log, "r+b") as f:
    f.seek(os.path.getsize(log) // 2)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 4]))
PY
}
without_its_log() { rm "$catalog"/*.log; }
without_its_manifest() { rm "$catalog"/CURRENT; }
gone() { rm -r "$catalog"; }
locked() {
    python3 - "$catalog/LOCK" "$work" <<'PY' &
import fcntl, sys, time
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)  # the agent that was killed may still have it
open(sys.argv[2] + "/is-locked", "w").close()
time.sleep(600)
PY
    locker=$!
    wait_for 60 test -e "$work/is-locked" || die "the catalog cannot be locked"
}
without_room() { head -c 64m /dev/zero >"$small/full" 2>/dev/null; [ "$(($(df --output=avail "$small" | tail -1)))" = 0 ] || die "there is room left"; }
all_over() { [ -z "${locker:-}" ] || builtin kill "$locker"; locker=''; rm -f "$small/full"; }

# damaged HOW PATTERN: the agent's log must say that; empty: it need not say anything.
damaged() {
    local how=$1 supervisor from
    fault "catalog $how"
    supervisor=$(supervisor_pid a)
    kill -STOP "$supervisor" # it would start the agent again before the catalog is damaged
    kill -9 "$(agent_pid a)"
    $how
    from=$(wc -l <"$(agent_log a)")
    kill -CONT "$supervisor"
    begin 2
    run_on a "0 1" --steps $((steps + 4)) --wait-commit
    all_end
    for rank in 0 1; do
        [ "$(restored_step $rank)" = $steps ] || die "$how: rank $rank restored $(restored_step $rank) instead of $steps"
        [ "$(restored_from $rank storage)" = 0 ] || die "$how: from storage: $(out $rank | grep RESTORED)"
    done
    [ -z "$2" ] || tail -n +$((from + 1)) "$(agent_log a)" | grep -qE "$2" || die "$how: the log does not say '$2'"
    all_over
    steps=$((steps + 4))
}
moved='catalog .* does not open'
moment
damaged with_garbage "$moved"
ls -d "$catalog"?* >/dev/null || die "nothing was moved aside: $(ls "$small")"
damaged with_a_bit_changed ''
damaged without_its_log ''
damaged without_its_manifest ''
damaged gone ''
damaged locked 'continuing without it'
[ $with_room = no ] || damaged without_room ''
damaged with_garbage "$moved" # and it is a good one again after all that
