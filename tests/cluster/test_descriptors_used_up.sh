#!/usr/bin/env bash
# An agent whose descriptors are used up: who trains goes on, new connections are refused without a spinning loop, and
# when there are descriptors again commands are served.
. "$(dirname "$0")/lib.sh" "$1"
command -v prlimit >/dev/null || skip "no prlimit here"
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a)
limit=$(prlimit --pid "$agent" --nofile --noheadings --output SOFT) || skip "the limits of the agent cannot be read"
first_free=0
while [ -e "/proc/$agent/fd/$first_free" ]; do first_free=$((first_free + 1)); done
moment
fault "no descriptor left"
prlimit --pid "$agent" --nofile=$first_free: || skip "the limits of the agent cannot be changed"
for round in 1 2 3 4 5 6 7 8; do timeout 2 "$bin/tierckpt" --config "$work/run/test/a/config.json" status >/dev/null 2>&1; done
log_must_say a 60 'no descriptor is left'
more_commits a 3 60 || die "commits do not go on: $(tail -3 "$(agent_log a)")"
[ "$(grep -c 'no descriptor is left' "$(agent_log a)")" -lt 20 ] || die "the log is filled with it"
prlimit --pid "$agent" --nofile="$limit": || die "the limit cannot be put back"
wait_for 60 ask a status >/dev/null || die "a command is not served though there are descriptors again"
more_commits a 3 60 || die "commits do not go on after it"
same_agent a "$agent" || die "the agent was restarted"
