#!/usr/bin/env bash
# With two networks, agents that are killed again and again: the session stays at the first address, and no address counts
# as one that does not answer, because it was only the agent that did not.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
train_on_two_networks
for i in 1 2 3 4; do
    moment
    builtin kill -9 "$(agent_pid b)" && fault "agent killed"
    sleep 0.5
    more_commits a 3 60 || die "no commits after kill $i"
done
! grep -h 'does not answer' "$(agent_log a)" "$(agent_log b)" || die "an address counts as failing"
! grep -h 'is up at 10\.77\.1\.' "$(agent_log a)" "$(agent_log b)" || die "the second address is used"
restores_all
