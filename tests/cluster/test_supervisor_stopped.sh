#!/usr/bin/env bash
# A supervisor that hangs does not delay its agent: commits continue, no node counts as lost, and trainers are not
# delayed.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":10000'
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
moment
kill -STOP "$(supervisor_pid b)"
sleep 15 # more than it takes to fill its queue
! logged a 'node b is down' || die "the agent whose supervisor hangs is not heard: $(grep 'is down' "$(agent_log a)")"
more_commits a 3 60 || die "no commits: $(tail -3 "$(agent_log a)")"
kill -CONT "$(supervisor_pid b)"
