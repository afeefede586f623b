#!/usr/bin/env bash
# A process in the control group of one node uses up the memory. The agent gives its slots and the other node's copies
# back instead of letting the kernel kill anything, training goes on, and status says what is no longer protected. When
# the process has ended, versions are committed again, and what is restored then is right to the bit.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/memory_group.sh"

begin 2
run_on a 0 --count $mib --steps 100000 --step-ms 100 --no-restore # slots of 16 MiB, three of its own and two for the other
run_on b 1 --count $mib --steps 100000 --step-ms 100 --no-restore
wait_for 60 committed_beyond 2 || die "nothing is committed: $(ask a status)"
agent=$(agent_pid a)

use_up 32
must_show 20 'memory has been critical since .*: cgroup .* has .* left'
must_show 20 'slots, .*, were given back because memory was short'
must_show 20 'saving is suspended'
must_show 20 "rank 1's copy on node a of version 1\.[0-9]+ was given up; it is now only in the memory of node b"
! ask a status >/dev/null || die "status says by its exit code that all is well"
none_killed
same_agent a "$agent" || die "the agent was killed: $(tail -2 "$work/run/test/a/supervisor.log")"
builtin kill -0 "${trainers[@]}" $hog || die "a process was killed"
[ "$(grep -c 'saving is suspended' "$(agent_log a)")" = 1 ] || die "the suspension was not logged once"
suspended=$(committed)

builtin kill $hog
wait_for 90 committed_beyond "$suspended" || die "nothing is committed after the shortage: $(ask a status)"
wait_for 60 nothing_missing || die "not everything is used again: $(cat "$work/status")"
last=$(committed)
kill_trainers

begin 2
run_on a 0 --count $mib --steps $((last + 20)) --done
run_on b 1 --count $mib --steps $((last + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$last" ] || die "restored $(restored_step 0) instead of $last"
