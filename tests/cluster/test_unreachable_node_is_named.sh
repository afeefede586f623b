#!/usr/bin/env bash
# Nodes that cannot reach each other are named, with the address that was tried, by the attach of every rank, within
# the configured time.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"session_wait_ms":2000'
begin 2
run_on a "0" --twins 2 --steps 2
# An address that is no interface's own: agents cannot connect from or to it.
settings="$settings"',"net_device":"lo","net_address":"127.0.0.12"'
run_on b "1" --twins 2 --steps 2
for pid in "${trainers[@]}"; do wait "$pid" && die "a rank attached without the other node"; done
must_say 0 'ERROR attach: .*no session with node b at 127.0.0.12:[0-9]+'
must_say 1 'ERROR attach: .*no session with node a at '
