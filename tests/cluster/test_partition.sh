#!/usr/bin/env bash
# A link is down: this is noticed, nothing commits and nothing is lost. Once it is up again, commits continue in the
# same term without any restart.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/partition.sh"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
b_down() { cut_link b; }
b_up() { heal_link b; }
survives_break b_down b_up
