#!/usr/bin/env bash
# With restore_spread "nccl" and without a device, the ranks log that once and use what the agents bring.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/spread.sh"
settings=',"restore_spread":"nccl"'
export CUDA_VISIBLE_DEVICES=
lose_until_lacked
log_must_say b 60 'could not pass shards to each other, fetching them through the agents: .'
! compgen -G "$work/run/$job/[c-h]/agent.log" >/dev/null ||
    ! grep -q 'could not pass shards' "$work/run/$job"/[c-h]/agent.log || die "another agent than rank 0's says it, too"
