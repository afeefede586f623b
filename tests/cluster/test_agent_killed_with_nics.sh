#!/usr/bin/env bash
# With two networks, agents that are killed again and again: commits continue, and no address counts as one that does not
# answer, because it was only the agent that did not. (A session may begin at the second address if the agent needs
# longer to start than the first one is tried for; unit/peer_addresses tests the order.)
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
train_on_two_networks
for i in 1 2 3 4; do
    moment
    builtin kill -9 "$(agent_pid b)" && fault "agent killed"
    sleep 0.5
    more_commits a 3 60 || die "no commits after kill $i"
done
! grep -h 'does not answer at its address' "$(agent_log a)" "$(agent_log b)" || die "an address counts as failing"
restores_all
