#!/usr/bin/env bash
# A trainer is killed at every moment of a restore that has to fetch a lost node's shards.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
kill_rounds trainer false 'kill_node c' kill_trainer
