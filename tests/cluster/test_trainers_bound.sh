#!/usr/bin/env bash
# A launcher binds each of its trainers to a processor of its own. The agent, which the first of them starts, uses all
# that the launcher may use, and so it does after its restart, and when its supervisor was started again.
. "$(dirname "$0")/lib.sh" "$1"
cpus_of() { sed -nE 's/^Cpus_allowed_list:\s*//p' "/proc/$1/status"; }
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
[ ${#cpus[@]} -ge 2 ] || skip "needs two processors"
command -v taskset >/dev/null || skip "needs taskset"
all=$(cpus_of $$)
bound() { # NODE COMMAND...
    shift
    exec taskset -c "$cpu" "$@"
}
in_node=bound
begin 2
cpu=${cpus[0]} && run_on a "0" --steps 100000 --step-ms 20
cpu=${cpus[1]} && run_on a "1" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
use_all() { # WHEN
    local pid
    for pid in $(agent_pid a) $(supervisor_pid a); do
        [ "$(cpus_of "$pid")" = "$all" ] || die "$1: $(cat "/proc/$pid/comm") runs on $(cpus_of "$pid"), not on $all"
        for task in "/proc/$pid/task"/*; do
            [ "$(cpus_of "$pid/task/$(basename "$task")")" = "$all" ] || die "$1: a thread of $(cat "/proc/$pid/comm") stays bound"
        done
    done
}
use_all "at the start"
[ "$(cpus_of "${trainers[0]}")" = "${cpus[0]}" ] || die "the trainer is not bound any more: $(cpus_of "${trainers[0]}")"

agent=$(agent_pid a)
kill -9 "$agent"
came_back() { [ -n "$(agent_pid a)" ] && [ "$(agent_pid a)" != "$agent" ]; }
wait_for 60 came_back || die "the agent does not come back"
more_commits a 3 60 || die "no commits after its restart"
use_all "after the agent's restart"

supervisor=$(supervisor_pid a)
kill -9 "$supervisor"
another() { [ -n "$(supervisor_pid a)" ] && [ "$(supervisor_pid a)" != "$supervisor" ]; }
wait_for 60 another || die "no other supervisor is started"
use_all "with another supervisor"
