#!/usr/bin/env bash
# A link of 8 Mbit/s, and versions that take a second on it: versions are refused or come late, training is never
# delayed for longer than block_time_ms, and commits continue.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"block_time_ms":500,"heartbeat_ms":200,"peer_timeout_ms":3000'
make_net a b
for node in a b; do
    tc -n "tck$$-$node" qdisc add dev net0 root tbf rate 8mbit burst 64kb latency 500ms || skip "no tbf here"
done
fault "a link of 8 Mbit/s"
begin 2
run_on a "0" --steps 400 --step-ms 25 --lockstep
run_on b "1" --steps 400 --step-ms 25 --lockstep
all_end
for rank in 0 1; do
    [ "$(stall_ms $rank)" -le 1000 ] || die "rank $rank was held up for $(stall_ms $rank) ms"
done
[ "$(commits a)" -ge 2 ] || die "only $(commits a) commits: $(out 0 | grep STATS)"
! grep -q 'node b is down' "$(agent_log a)" || die "a slow link was taken for a lost node"
