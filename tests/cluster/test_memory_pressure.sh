#!/usr/bin/env bash
# A process in the control group of one node uses up the memory. The agent gives its slots and the other node's copies
# back instead of letting the kernel kill anything, training goes on, and status says what is no longer protected. When
# the process has ended, versions are committed again, and what is restored then is right to the bit.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
! sanitized || skip "a sanitized agent has a need of its own"
mib=$((1 << 20))
for group in "/sys/fs/cgroup/memory/tck$$" "/sys/fs/cgroup/tck$$"; do
    limit=$group/memory.limit_in_bytes usage=$group/memory.usage_in_bytes events=$group/memory.oom_control
    cache=total_inactive_file
    [ -e "$(dirname "$group")/cgroup.procs" ] && mkdir "$group" 2>/dev/null || continue
    [ -e "$limit" ] || limit=$group/memory.max usage=$group/memory.current events=$group/memory.events cache=inactive_file
    echo $((400 * mib)) >"$limit" 2>/dev/null && break
    rmdir "$group"
done
[ -e "$group/cgroup.procs" ] || skip "no memory control group can be made here"
at_end() { wait_for 30 rmdir "$group" 2>/dev/null; }
in_group() {
    local node=$1
    shift
    [ "$node" = b ] || echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"
}
in_node=in_group
settings="$settings"',"memory_reserve_bytes":"64MiB"'
available() { echo $(($(cat "$limit") - $(cat "$usage") + $(awk -v key=$cache '$1 == key { print $2 }' "$group/memory.stat"))); }
says() { ask a status >"$work/status" 2>&1; grep -qE -- "$1" "$work/status"; }
must_show() { wait_for "$1" says "$2" || die "status does not show '$2' but: $(cat "$work/status")"; }

begin 2
run_on a 0 --count $mib --steps 100000 --step-ms 100 --no-restore # slots of 16 MiB, three of its own and three for the other
run_on b 1 --count $mib --steps 100000 --step-ms 100 --no-restore
committed() { ask a --json status 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["committed"].get("step", 0))' 2>/dev/null || echo 0; }
committed_beyond() { [ "$(committed)" -gt "$1" ]; }
wait_for 30 committed_beyond 2 || die "nothing is committed: $(ask a status)"
agent=$(agent_pid a)

fault "memory used up"
# 32 MiB more than the group has while the slots have theirs.
python3 -c '
import sys, time
held = []
for at in range(0, int(sys.argv[1]), 4 << 20):
    held.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.2)
print("has it all", flush=True)
time.sleep(600)' $(($(available) + 32 * mib)) >"$work/hog" &
hog=$!
echo $hog >"$group/cgroup.procs"
wait_for 90 grep -qs all "$work/hog" || die "the process did not get its memory: $(ask a status)"
must_show 20 'memory has been critical since .*: cgroup .* has .* left'
must_show 20 'slots, .*, were given back because memory was short'
must_show 20 'saving is suspended'
must_show 20 "rank 1's copy on node a of version 1\.[0-9]+ was given up; it is now only in the memory of node b"
! ask a status >/dev/null || die "status says by its exit code that all is well"
! grep -qE '^oom_kill [1-9]' "$events" || die "the kernel has killed a process: $(cat "$events")"
same_agent a "$agent" || die "the agent was killed: $(tail -2 "$work/run/test/a/supervisor.log")"
builtin kill -0 "${trainers[@]}" $hog || die "a process was killed"
[ "$(grep -c 'saving is suspended' "$(agent_log a)")" = 1 ] || die "the suspension was not logged once"
suspended=$(committed)

builtin kill $hog
wait_for 90 committed_beyond "$suspended" || die "nothing is committed after the shortage: $(ask a status)"
nothing_missing() { ask a status >"$work/status" 2>&1 && ! grep -q 'given' "$work/status"; }
wait_for 60 nothing_missing || die "not everything is used again: $(cat "$work/status")"
last=$(committed)
kill_trainers

begin 2
run_on a 0 --count $mib --steps $((last + 20)) --done
run_on b 1 --count $mib --steps $((last + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$last" ] || die "restored $(restored_step 0) instead of $last"
