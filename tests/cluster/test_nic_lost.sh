#!/usr/bin/env bash
# Nodes with two interfaces, of which one fails: by its carrier, on one side alone, silently, or switched off. The agents
# go on at the other address, no node counts as lost, and commits continue in the same term. Which address fails and
# which is used is in the log and the status.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
train_on_two_networks
ip netns exec "tck$$-b" iptables -L INPUT >/dev/null 2>&1 || skip "no iptables here"
starts_at_first

# b loses its carrier. For a, it is silent.
switches_to 10.77.1.2 cut_link b
log_must_say a 60 'node b does not answer at its address 10\.77\.0\.2:[0-9]+: no heartbeat'
ask a status >"$work/status" || true
grep -qE 'node b +up +10\.77\.1\.2:[0-9]+ ' "$work/status" || die "the status does not show which address is used: $(cat "$work/status")"
grep -qE 'WARNING: node b does not answer at its address 10\.77\.0\.2:[0-9]+' "$work/status" || die "the status does not warn: $(cat "$work/status")"
ask a doctor >"$work/doctor" || true
grep -qE 'BAD +network path .*node b .*10\.77\.0\.2' "$work/doctor" || die "doctor does not see it: $(cat "$work/doctor")"

# The other one, now that the first one is back.
heal_link b
switches_to 10.77.0.2 cut_link1 a
heal_link1 a

# Silent, though it has a carrier.
deaf() { fault "link silent" && ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP && ip netns exec "tck$$-b" iptables -A OUTPUT -o net0 -j DROP; }
switches_to 10.77.1.2 deaf
ip netns exec "tck$$-b" iptables -F

# Switched off on the node itself.
off() { fault "interface off" && ip -n "tck$$-a" link set net1 down; }
switches_to 10.77.0.2 off
[ "$(grep -c 'node b does not answer at its address 10\.77\.0\.2' "$(agent_log a)")" -le 2 ] || die "it is not logged once for each time"
restores_all
