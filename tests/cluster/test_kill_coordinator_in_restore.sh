#!/usr/bin/env bash
# The coordinator's agent is killed at every moment of a restore that has to fetch a lost node's shards.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
kill_rounds coordinator true 'kill_node c' kill_agent a
