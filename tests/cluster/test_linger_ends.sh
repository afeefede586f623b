#!/usr/bin/env bash
# Agents whose trainers do not come back end after linger_s. If storage is full, so that a committed version stays in
# their memory alone, the log says that it is lost. The next start is told, too, and does not begin afresh.
. "$(dirname "$0")/lib.sh" "$1"
excused="the memory is given up on purpose"
fill_storage
linger_s=4
begin 1
run_on a "0" --steps 100000 --step-ms 20
wait_for 60 has_commits a 2 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a)
kill_trainers
log_must_say a 60 'no trainer has come back for half of linger_s'
log_must_say a 60 'exiting: no trainer has connected for linger_s'
log_must_say a 60 'warn a version 1\.[0-9]+ is only in memory, and this node.s part of it is lost now: it could not be drained'
ended() { ! builtin kill -0 "$agent" 2>/dev/null; }
wait_for 60 ended || die "the agent has not ended"
rm "$work/save/other"
begin 1
run_on a "0" --steps 3
wait "${trainers[0]}" && die "the next start began afresh: $(out 0 | tail -3)"
must_say 0 'ERROR restore: version 1\.[0-9]+ was committed, and no copy of it was found; .*tierckpt forget'
