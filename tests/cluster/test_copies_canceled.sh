#!/usr/bin/env bash
# A version is aborted while its copies are being sent over a link of 128 Mbit/s: they are canceled, and those of the
# next version are sent instead of their rest.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":10000,"slots":3'
mem_interval=1 held=$work/held count=$((5 << 19))
make_net a b
for node in a b; do
    tc -n "tck$$-$node" qdisc add dev net0 root tbf rate 128mbit burst 256kb latency 200ms || skip "no tbf here"
done
sent() { ip -n "tck$$-a" -s link show net0 | awk '/TX:/ { getline; print $1 }'; }
has_sent() { [ "$(sent)" -ge "$1" ]; }
begin 2
run_on a "0" --steps 3 --count $count --lockstep --wait-commit
run_on b "1" --steps 3 --count $count --lockstep --wait-commit --spoil-seal 2 --hold-seal 2 --hold-file "$held"
wait_for 60 said 0 '^COMMITTED 1$' || die "no commit: $(out 0 | tail -3)"
wait_for 60 said 1 '^HELD 2$' || die "step 2 is not saved: $(out 1 | tail -3)"
wait_for 60 has_sent $(($(sent) + (1 << 20))) || die "no copy of step 2 is sent"
touch "$held.2"
log_must_say a 60 'version 1\.2 is aborted'
before=$(sent)
log_must_say a 60 'version 1\.3 is protected'
moved=$(($(sent) - before))
log_must_say a 60 'copy of version 1\.2 to node b was canceled'
log_must_say b 60 'copy of version 1\.2 from node a is canceled'
! logged a 'no free slot' || die "the next version was sent before the holder had room"
wait_for 60 said 0 '^COMMITTED 3$' || die "no commit after an aborted version: $(out 0 | tail -3)"

# A copy has two tensors of 8-byte elements; at most four chunks of 4 MiB were in flight.
image=$((2 * 8 * count))
[ $moved -lt $((image + image * 6 / 10)) ] || die "the aborted copy was sent to its end: $moved bytes for $image"
