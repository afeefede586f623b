#!/usr/bin/env bash
# Copies that take several times version_timeout_ms, over a link of 64 Mbit/s, are waited for as long as they move. If
# the agent that should take one is stopped, the version is aborted after that time, and commits continue when it
# does.
. "$(dirname "$0")/lib.sh" "$1"
timeout_ms=3500
settings=',"version_timeout_ms":'$timeout_ms',"heartbeat_ms":200,"peer_timeout_ms":60000,"slots":2,"block_time_ms":200'
mem_interval=1
make_net a b
for node in a b; do
    tc -n "tck$$-$node" qdisc add dev net0 root tbf rate 64mbit burst 256kb latency 200ms || skip "no tbf here"
done
now_ms() { date +%s%3N; }
begin 2
run_on a "0" --steps 100000 --count $((4 << 20)) --lockstep --wait-commit
run_on b "1" --steps 100000 --count $((4 << 20)) --lockstep --wait-commit
wait_for 60 said 0 '^FRESH' || die "no start: $(out 0 | tail -3)"
since=$(now_ms)
wait_for 60 said 0 '^(COMMITTED|WHY)' || die "nothing is decided: $(out 0 | tail -3)"
took=$(($(now_ms) - since))
must_say 0 '^COMMITTED 1$'
[ $took -ge $((2 * timeout_ms)) ] || die "the copies took only $took ms: the link is not that slow"
! logged a 'is given up' && ! logged b 'is given up' || die "a version was given up although its copies moved"

agent=$(agent_pid b)
kill -STOP "$agent"
log_must_say a 60 'is given up, since nothing of it moved for 3\.5 s \(version_timeout_ms\): node b has not acknowledged'
log_must_say a 60 'version 1\.[0-9]+ is aborted'
! logged a 'node b is down' || die "the stopped agent counts as lost: $(grep 'is down' "$(agent_log a)")"
kill -CONT "$agent"
more_commits a 1 120 || die "no commits after it goes on: $(out 0 | tail -3)"
