#!/usr/bin/env bash
# Memory on one node is so short that the agent gives everything back, and only storage and the other node have the version
# then. The trainers restart in the meantime: they wait until there is memory for a slot, and continue from that version.
. "$(dirname "$0")/lib.sh" "$1"
# A slot is taken back only if half of the reserve is left then, 64 MiB.
group_mib=600 reserve=128MiB
. "$(dirname "$0")/memory_group.sh"
storage_interval=2
settings="$settings"',"version_timeout_ms":3000' # of the one whose copies are refused for want of memory

begin 2
run_on a 0 --count $mib --steps 100000 --step-ms 100 --no-restore # slots of 16 MiB, three of its own and two for the other
run_on b 1 --count $mib --steps 100000 --step-ms 100 --no-restore
published_beyond() { [ "$(step_of published)" -gt "$1" ]; }
wait_for 60 published_beyond 2 || die "nothing is published: $(ask a status)"
agent=$(agent_pid a)

leave 48
must_show 20 'memory has been critical since .*: cgroup .* has .* left'
# A slot is given back once its version is decided and drained: a complete one that is left would be restored.
must_show 20 '5 slots, .* were given back'
last=$(committed)
must_show 1 "rank 0's copy on node a of version 1\.$last was given up; it is now only in storage"
must_show 1 "rank 1's copy on node a of version 1\.$last was given up; it is now in storage, and in the memory of node b"
! grep -qE 'memory of node( while|,)' "$work/status" || die "a node without a name: $(cat "$work/status")"
kill_trainers

begin 2
run_on a 0 --count $mib --steps $((last + 20)) --done
run_on b 1 --count $mib --steps $((last + 20)) --done
sleep 5
builtin kill -0 "${trainers[@]}" || die "a trainer did not wait for memory: $(out 0 | tail -3; out 1 | tail -3)"
none_killed
same_agent a "$agent" || die "the agent was killed: $(tail -2 "$work/run/test/a/supervisor.log")"
! grep -q "WRONG" "$work"/out.* || die "wrong bytes"

builtin kill $hog
all_end
[ "$(restored_step 0)" -ge "$last" ] || die "restored $(restored_step 0) instead of $last"
