#!/usr/bin/env bash
# A job that needs more memory than the agent's control group has is refused with the bytes wanted and left, before a
# page is touched. No process is killed for lack of memory, and a job that fits continues.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
! sanitized || skip "a sanitized agent has a need of its own"
for group in "/sys/fs/cgroup/memory/tck$$" "/sys/fs/cgroup/tck$$"; do
    limit=$group/memory.limit_in_bytes
    [ -e "$(dirname "$group")/cgroup.procs" ] && mkdir "$group" 2>/dev/null || continue
    [ -e "$limit" ] || limit=$group/memory.max
    echo $((192 << 20)) >"$limit" 2>/dev/null && break
    rmdir "$group"
done
[ -e "$group/cgroup.procs" ] || skip "no memory control group can be made here"
at_end() { wait_for 30 rmdir "$group" 2>/dev/null; }
in_group() { shift; echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"; }
in_node=in_group
begin 1
run_on a 0 --count 4096 --steps 8 --wait-commit # starts the agent, in the group
all_end
must_say 0 '^COMMITTED 8$'
agent=$(agent_pid a)
grep -q "tck$$" "/proc/$agent/cgroup" || die "the agent is not in the group: $(cat "/proc/$agent/cgroup")"
in_node=""
fault "more than the control group allows"
begin 1
run_on a 0 --count $((4 << 20)) --steps 12 --no-restore # three slots of 64 MiB; the trainer is not in the group
none_ends_well "registered beyond the group's limit"
must_say 0 '^ERROR register: .*[0-9]+ bytes wanted'
same_agent a "$agent" || die "the agent was killed: $(tail -2 "$work/run/test/a/supervisor.log")"
begin 1
run_on a 0 --count 4096 --steps 12 --done
all_end
[ "$(restored_step 0)" = 8 ] || die "restored $(restored_step 0) instead of 8"
