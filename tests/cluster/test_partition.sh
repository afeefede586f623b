#!/usr/bin/env bash
# A link that is down: it is noticed, nothing commits, nothing is lost; once it is up again commits go on without any
# restart, in the same term.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/partition.sh"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
b_down() { cut_link b; }
b_up() { heal_link b; }
survives_break b_down b_up
