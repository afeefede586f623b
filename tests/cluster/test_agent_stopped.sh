#!/usr/bin/env bash
# An agent that is stopped (SIGSTOP) does not delay a trainer for longer than block_time_ms. When it continues, so do
# commits.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"block_time_ms":500,"heartbeat_ms":200,"peer_timeout_ms":1500'
begin 2
run_on a "0" --steps 1600 --step-ms 20 --lockstep
run_on b "1" --steps 1600 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid b)
moment
kill -STOP "$agent"
log_must_say a 60 'node b is down'
before=$(out 1 | grep -c STEP)
goes_on() { [ "$(out 1 | grep -c STEP)" -ge $((before + 50)) ]; }
wait_for 60 goes_on || die "training stands still while its agent does"
kill -CONT "$agent"
same_agent b "$agent" || die "the agent was restarted"
more_commits a 3 60 || die "no commits after it goes on: $(tail -3 "$(agent_log b)")"
all_end
for rank in 0 1; do
    [ "$(stall_ms $rank)" -le 900 ] || die "rank $rank was held up for $(stall_ms $rank) ms"
done
