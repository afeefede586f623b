#!/usr/bin/env bash
# An agent that runs out of descriptors just when another agent is restarted can be reached again later. UCX may then
# have stopped listening permanently. Once there are descriptors again, the job survives the death of every other
# agent, if need be because the agent restarts itself, and nothing committed is lost.
. "$(dirname "$0")/lib.sh" "$1"
command -v prlimit >/dev/null || skip "no prlimit here"
settings=',"heartbeat_ms":200,"peer_timeout_ms":3000'
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
for round in 1 2; do
    agent=$(agent_pid a)
    limit=$(prlimit --pid "$agent" --nofile --noheadings --output SOFT) || skip "the limits of the agent cannot be read"
    free=0
    while [ -e "/proc/$agent/fd/$free" ]; do free=$((free + 1)); done
    fault "no descriptor left"
    prlimit --pid "$agent" --nofile=$free: || skip "the limits of the agent cannot be changed"
    kill -9 "$(agent_pid b)"
    sleep 3
    prlimit --pid "$agent" --nofile="$limit": 2>/dev/null # it may have ended
    more_commits a 3 120 || die "round $round: commits do not go on: $(tail -3 "$(agent_log a)")"
    kill -9 "$(agent_pid b)"
    more_commits a 3 120 || die "round $round: no commits after the other agent died: $(tail -3 "$(agent_log a)")"
done
echo "$(grep -c 'other agents cannot connect to this one' "$(agent_log a)") times it ended itself"
newest=$(newest_committed b)
kill_trainers
begin 2
run_on a "0" --steps $((newest + 10)) --done
run_on b "1" --steps $((newest + 10)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
