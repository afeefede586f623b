#!/usr/bin/env bash
# An agent that is asked to end while storage is full leaves when grace_s is over, and its log says what is lost with it,
# by rank. The next start does not begin from scratch.
. "$(dirname "$0")/lib.sh" "$1"
excused="the memory is given up on purpose"
fill_storage
settings=',"grace_s":2,"copies":1'
begin 2
run_on a "0" --steps 100000 --step-ms 20 --twins 2 --count 262144
run_on b "1" --steps 100000 --step-ms 20 --twins 2 --count 262144
wait_for 60 has_commits a 2 || die "no commit: $(out 0 | tail -3)"
kill_trainers
for node in a b; do # one after the other, so that b is up when a ends
    agent=$(agent_pid $node)
    kill -TERM "$agent"
    log_must_say $node 60 'received SIGTERM: version 1\.[0-9]+, which is only in memory, is drained to storage'
    log_must_say $node 60 'warn . version 1\.[0-9]+ is only in memory, and this node.s part of it is lost now: .* within 2 s .grace_s.'
    log_must_say $node 60 'exiting: the system has asked this agent to end'
    ended() { ! builtin kill -0 "$agent" 2>/dev/null; }
    wait_for 60 ended || die "the agent of node $node has not ended"
done
log_must_say a 1 'version 1\.[0-9]+ was not published in time: of this node.s 2 shards, 0 are written to storage, and 1 have no copy on another node that is up: of rank 0$'
log_must_say b 1 'version 1\.[0-9]+ was not published in time: of this node.s 1 shards, 0 are written to storage, and 1 have no copy on another node that is up: of rank 1$'
rm "$work/save/other"
begin 2
run_on a "0" --steps 3 --twins 2 --count 262144
run_on b "1" --steps 3 --twins 2 --count 262144
none_ends_well "the next start began from scratch: $(out 0 | tail -3)"
must_say 0 'ERROR restore: version 1\.[0-9]+ was committed, and no copy of it was found; .*tierckpt forget'
