#!/usr/bin/env bash
# An agent that leads nothing is killed at every moment of a restore.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
kill_rounds agent true : kill_agent b
