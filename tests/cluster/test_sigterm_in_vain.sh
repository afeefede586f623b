#!/usr/bin/env bash
# An agent that is asked to end while storage is full leaves when grace_s is over, and its log says what is lost with it.
# The next start does not begin afresh.
. "$(dirname "$0")/lib.sh" "$1"
excused="the memory is given up on purpose"
fill_storage
settings=',"grace_s":2'
begin 1
run_on a "0" --steps 100000 --step-ms 20
wait_for 60 has_commits a 2 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a)
kill_trainers
kill -TERM "$agent"
log_must_say a 60 'received SIGTERM: version 1\.[0-9]+, which is only in memory, is drained to storage'
log_must_say a 60 'warn a version 1\.[0-9]+ is only in memory, and this node.s part of it is lost now: .* within 2 s .grace_s.'
log_must_say a 60 'exiting: the system has asked this agent to end'
ended() { ! builtin kill -0 "$agent" 2>/dev/null; }
wait_for 60 ended || die "the agent has not ended"
rm "$work/save/other"
begin 1
run_on a "0" --steps 3
wait "${trainers[0]}" && die "the next start began afresh: $(out 0 | tail -3)"
must_say 0 'ERROR restore: version 1\.[0-9]+ was committed, and no copy of it was found; .*tierckpt forget'
