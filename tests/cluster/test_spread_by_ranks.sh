#!/usr/bin/env bash
# With restore_spread "oob" the ranks themselves send a new node what it lacks and their twins have, to the bit,
# without waiting until its agent has it.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/spread.sh"
settings=',"restore_spread":"oob"'
lose_until_lacked
! logged b 'could not pass shards' || die "they fell back: $(grep 'could not pass' "$(agent_log b)")"
