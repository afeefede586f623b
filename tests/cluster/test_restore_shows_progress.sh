#!/usr/bin/env bash
# A restore that takes long, over a link of 8 Mbit/s: status and metrics of the node that waits say for how long and how
# far it is, and rank 0 logs it. Afterwards nothing is under way.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"peer_timeout_ms":10000'
make_net a b c
begin 2
run_on a 0 --count 4000000 --steps 1000 --step-ms 50 --wait-commit
run_on b 1 --count 4000000 --steps 1000 --step-ms 50 --wait-commit
wait_for 60 has_commits b 5 || die "no commit: $(out 1 | tail -3)"
kill_node a
kill_trainers
tc -n "tck$$-b" qdisc add dev net0 root tbf rate 8mbit burst 64kb latency 2000ms || skip "no tbf here"
fault "a link of 8 Mbit/s"
begin 2
run_on c 0 --count 4000000 --steps 10
run_on b 1 --count 4000000 --steps 10
shows() { ask c status 2>/dev/null | grep -qE "$1"; }
wait_for 60 shows 'under way: restore for [0-9.]+ s, [1-9][0-9.]* [KM]iB of [0-9.]+ MiB' || die "no progress in status: $(ask c status)"
wait_for 60 logged c 'rank0.*restore for [0-9]+ s: getting the shards, [0-9.]+ of [0-9.]+ GB' ||
    die "rank 0 does not log it: $(grep rank0 "$(agent_log c)")"
tc -n "tck$$-b" qdisc del dev net0 root
all_end
! shows 'under way: restore' || die "a restore that is over is still shown"
