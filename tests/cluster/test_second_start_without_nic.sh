#!/usr/bin/env bash
# A second start of a job from another node is refused although the first address of the node that trains does not answer,
# and only its agent knows that its trainer is alive.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
make_nets a b
ip netns exec "tck$$-a" iptables -A INPUT -i net0 -j DROP 2>/dev/null || skip "no iptables here"
fault "link silent"
run_id=""
begin 1
run_on a "0" --launch 1 --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
fault "a second start"
begin 1
run_on b "0" --launch 2 --steps 10
none_ends_well "the second start trains"
must_say 0 'ERROR attach: .*held by a start whose trainers are alive: rank 0 of 1 is pid [0-9]+ on node a'
more_commits a 3 60 || die "the first start no longer commits"
