#!/usr/bin/env bash
# With traffic_class, what agents send over TCP has its DSCP: on connections that they made and on those that they
# accepted, also after these were made again.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"traffic_class":"cs1","heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
for node in a b; do
    ip netns exec "tck$$-$node" iptables -A OUTPUT -o net0 -p tcp -m dscp --dscp-class CS1 -j ACCEPT 2>/dev/null || skip "no iptables with dscp here"
    ip netns exec "tck$$-$node" iptables -A OUTPUT -o net0 -p tcp -j ACCEPT
done
sent() { # NODE RULE: packets that this rule has seen
    ip netns exec "tck$$-$1" iptables -L OUTPUT -vnx | awk -v rule="$2" 'NR == rule + 2 { print $1 }'
}
count_from_zero() { for node in a b; do ip netns exec "tck$$-$node" iptables -Z OUTPUT; done; }
# all_marked: nothing that a node sends is unmarked while it commits.
all_marked() {
    local node
    count_from_zero
    more_commits a 3 60 || die "no commits"
    for node in a b; do
        [ "$(sent "$node" 1)" -gt 20 ] && [ "$(sent "$node" 2)" = 0 ] || return 1
    done
}
# Connections that were made a moment ago, and those that fail and are made again, send some packets without it.
is_marked() {
    wait_for 60 all_marked || die "packets with and without the class: a $(sent a 1), $(sent a 2), b $(sent b 1), $(sent b 2)"
}
begin 2
run_on a "0" --steps 100000 --step-ms 20 --count 1000000 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --count 1000000 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
is_marked

# The connections break and are made again.
cut_link b
sleep 3
heal_link b
more_commits a 2 60 || die "no commits after the link came back"
is_marked
kill_trainers
