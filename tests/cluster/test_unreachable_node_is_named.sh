#!/usr/bin/env bash
# Nodes that cannot reach each other are named by the restore of every rank, which does not wait for ever.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --twins 2 --steps 2
# An address that is no interface's own: agents cannot connect from or to it.
settings=',"net_device":"lo","net_address":"127.0.0.12"'
run_on b "1" --twins 2 --steps 2
for pid in "${trainers[@]}"; do wait "$pid" && die "a rank restored without the other node"; done
must_say 0 'ERROR .*(no session with node b|127.0.0.12)'
