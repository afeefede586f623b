#!/usr/bin/env bash
# A link that is down and up again for a second each: versions still commit, and the agents' logs stay short.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":100,"peer_timeout_ms":500'
make_net a b
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
gaps=5
# short NODE: apart from what each version says, no kind of line (numbers do not count) comes more often than a few times
# for each gap.
short() {
    grep -vE ' debug |version [0-9.]+ is |draining' "$(agent_log "$1")" |
        sed -E 's/^[^ ]+ //; s/[0-9a-f]{32}//g; s/[0-9]+//g' | sort | uniq -c | awk -v most=$((gaps * 12)) '$1 > most' >"$work/kinds"
    [ ! -s "$work/kinds" ] || die "the log of $1 is not short: $(cat "$work/kinds")"
}
for ((gap = 1; gap <= gaps; gap++)); do
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
for node in a b; do short $node; done
