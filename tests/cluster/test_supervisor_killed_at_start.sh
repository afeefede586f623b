#!/usr/bin/env bash
# A supervisor dies after it has restarted the agent and before the agent is ready: the agent has the memory, so it
# continues and starts another supervisor, and nothing is lost.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0 1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
supervisor=$(supervisor_pid a) first=$(agent_pid a)
config=$work/run/test/a/config.json
mv "$config" "$work/config"
mkfifo "$config" # it cannot become ready before somebody writes what it reads
kill -9 "$first"
restarted() { agent=$(agent_pid a); [ -n "$agent" ] && [ "$agent" != "$first" ]; }
wait_for 60 restarted || die "the agent is not started again"
kill -9 "$supervisor"
# It reads the file twice: it starts itself again with an environment of its own. Each time it must find one end of it.
ready=$(grep -c ' is ready at ' "$(agent_log a)")
feed() { timeout 60 bash -c 'cat "$0" >"$1"' "$work/config" "$config" || die "the configuration is not read"; }
started_again() { grep -qsa TIERCKPT_UCX_READY= "/proc/$agent/environ"; }
is_ready() { [ "$(grep -c ' is ready at ' "$(agent_log a)")" -gt "$ready" ]; }
feed
wait_for 60 started_again || die "the agent does not start itself again"
feed
wait_for 60 is_ready || die "the agent does not get ready: $(tail -3 "$(agent_log a)")"
mv "$work/config" "$config"
log_must_say a 60 'the new supervisor has every descriptor'
more_commits a 3 60 || die "no commits after it: $(tail -3 "$(agent_log a)")"
same_agent a "$agent" || die "the agent was started once more"
newest=$(newest_committed a)
kill_trainers
begin 2
run_on a "0 1" --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from local memory: $(out 0 | grep RESTORED)"
