# shellcheck shell=bash
# Node a in a control group of 400 MiB ($group_mib), and a process that uses its memory up. Sourced after lib.sh.
needs_root
! sanitized || skip "a sanitized agent has a need of its own"
mib=$((1 << 20))
for group in "/sys/fs/cgroup/memory/tck$$" "/sys/fs/cgroup/tck$$"; do
    limit=$group/memory.limit_in_bytes usage=$group/memory.usage_in_bytes events=$group/memory.oom_control
    cache='^total_(in)?active_file '
    [ -e "$(dirname "$group")/cgroup.procs" ] && mkdir "$group" 2>/dev/null || continue
    [ -e "$limit" ] || limit=$group/memory.max usage=$group/memory.current events=$group/memory.events cache='^((in)?active_file|slab_reclaimable) '
    echo $((${group_mib:-400} * mib)) >"$limit" 2>/dev/null && break
    rmdir "$group"
done
[ -e "$group/cgroup.procs" ] || skip "no memory control group can be made here"
at_end() { [ -z "${hog:-}" ] || builtin kill $hog 2>/dev/null; wait_for 30 rmdir "$group" 2>/dev/null; }
in_group() {
    local node=$1
    shift
    [ "$node" = b ] || echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"
}
in_node=in_group
settings="$settings"',"memory_reserve_bytes":"'"${reserve:-64MiB}"'"'
available() { echo $(($(cat "$limit") - $(cat "$usage") + $(awk -v keys="$cache" '$0 ~ keys { sum += $2 } END { print sum + 0 }' "$group/memory.stat"))); }
says() { ask a status >"$work/status" 2>&1; grep -qE -- "$1" "$work/status"; }
must_show() { wait_for "$1" says "$2" || die "status does not show '$2' but: $(cat "$work/status")"; }
step_of() { ask a --json status 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]].get("step", 0))' "$1" 2>/dev/null || echo 0; }
committed() { step_of committed; }
committed_beyond() { [ "$(committed)" -gt "$1" ]; }
nothing_missing() { ask a status >"$work/status" 2>&1 && ! grep -q 'given' "$work/status"; }
none_killed() { ! grep -qE '^oom_kill [1-9]' "$events" || die "the kernel has killed a process: $(cat "$events")"; }
# use_up MIB: a process, $hog, takes so much more than the group has while the slots have theirs.
use_up() {
    fault "memory used up"
    python3 -c '
import sys, time
held = []
for at in range(0, int(sys.argv[1]), 4 << 20):
    held.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.2)
print("has it all", flush=True)
time.sleep(600)' $(($(available) + $1 * mib)) >"$work/hog" &
    hog=$!
    echo $hog >"$group/cgroup.procs"
    wait_for 90 grep -qs all "$work/hog" || die "the process did not get its memory: $(ask a status)"
}
# leave MIB: a process, $hog, leaves the group so much and no more: it takes what others free, and gives
# back what others need.
leave() {
    fault "memory used up"
    python3 - "$limit" "$usage" "$group/memory.stat" "$cache" "$1" <<'EOF' &
import mmap, re, sys, time
limit, usage, stat, cache, left = sys.argv[1:]
number = lambda path: int(open(path).read())
def available():
    counts = [int(line.split()[1]) for line in open(stat) if re.match(cache, line)]
    return number(limit) - number(usage) + sum(counts)
chunk, held = 2 << 20, []
while True:
    over = available() - (int(left) << 20)
    if over > chunk:
        held.append(mmap.mmap(-1, chunk))
        held[-1].write(b"x" * chunk)
    elif over < -chunk and held:
        held.pop().close()
    time.sleep(0.01)
EOF
    hog=$!
    echo $hog >"$group/cgroup.procs"
}
