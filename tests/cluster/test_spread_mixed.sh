#!/usr/bin/env bash
# Ranks that are not configured alike do not wait for each other: all use what the agents bring.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/spread.sh"
node_json_alike=$(declare -f node_json | tail -n +2)
eval "node_json_of() $node_json_alike"
node_json() { # NODE: c is another
    local settings=',"restore_spread":"oob"'
    [ "$1" != c ] || settings=',"restore_spread":"agents"'
    node_json_of "$1"
}
lose_and_restore a c
log_must_say b 60 'could not pass shards to each other, fetching them through the agents: restore_spread is not the same on all ranks'
