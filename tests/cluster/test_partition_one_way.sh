#!/usr/bin/env bash
# A link that is silent in one direction only: it is noticed, nothing commits, nothing is lost; once it carries both
# directions again commits go on without any restart, in the same term.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/partition.sh"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
ip netns exec "tck$$-b" iptables -L INPUT >/dev/null 2>&1 || skip "no iptables here"
b_deaf() { ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP; }
b_hears() { ip netns exec "tck$$-b" iptables -F INPUT; }
survives_break b_deaf b_hears
