#!/usr/bin/env bash
# A restore survives an agent, other than the coordinator's, that is killed at any moment of it.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
kill_rounds agent true : kill_agent b
