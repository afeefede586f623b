#!/usr/bin/env bash
# A link that is down and up again for a second each: versions still commit, and the agents' logs stay short.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":100,"peer_timeout_ms":500'
make_net a b
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
for gap in 1 2 3 4 5; do
    moment
    cut_link b
    sleep 1
    moment 600
    heal_link b
    more_commits a 2 60 || die "no commits after gap $gap"
    more_commits b 2 60 || die "no commits on b after gap $gap"
done
more_commits a 5 60 || die "no commits after it"
more_commits b 5 60 || die "no commits after it on b"
