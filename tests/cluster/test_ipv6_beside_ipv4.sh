#!/usr/bin/env bash
# Nodes whose second interface has no IPv4 address: their agents start without it, say so, and go on over IPv4.
. "$(dirname "$0")/lib.sh" "$1"
make_nets a b
i=0
for node in a b; do
    i=$((i + 1))
    ip -n "tck$$-$node" address flush dev net1
    ip -n "tck$$-$node" address add "fd78::$i/64" dev net1 nodad || skip "no IPv6 here"
done
mem_interval=5
begin 2
run_on a "0" --steps 10 --wait-commit
run_on b "1" --steps 10 --wait-commit
all_end
logged a 'node b is up at 10\.77\.0\.2:' || die "no session over IPv4: $(grep 'is up' "$(agent_log a)")"
for node in a b; do
    logged $node 'network interface net1 has no IPv4 address: this agent does without it' || die "the log of $node does not say that it does without net1"
done
