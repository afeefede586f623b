#!/usr/bin/env bash
# A whole node is lost, trainer, agent, supervisor and memory, at every moment of a restore.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
kill_rounds node false : kill_all_of b
