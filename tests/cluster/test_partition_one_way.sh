#!/usr/bin/env bash
# A link is silent in one direction only: this is noticed, nothing commits and nothing is lost. Once it works in both
# directions again, commits continue in the same term without any restart.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/partition.sh"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
ip netns exec "tck$$-b" iptables -L INPUT >/dev/null 2>&1 || skip "no iptables here"
b_deaf() { ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP; }
b_hears() { ip netns exec "tck$$-b" iptables -F INPUT; }
survives_break b_deaf b_hears
