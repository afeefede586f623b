#!/usr/bin/env bash
# A build with another format number is refused at once, with an error that names both numbers: between a trainer and
# an agent, between two agents, and for an agent that finds the memory of the other build. What is committed is
# restored nevertheless.
. "$(dirname "$0")/lib.sh" "$1"
number() { sed -nE "s/^#define $2 +([0-9]+)\$/\1/p" "$(dirname "$0")/../../$1"; }
# agent_of FORMAT: from now on agents that are started are of that build; "": of this one.
agent_of() {
    local program=$build/runtime/agent/tierckptd
    [ -z "$1" ] || program=$build/tests/cluster/cluster_agent_$1
    cp "$program" "$bin/next" && mv -f "$bin/next" "$bin/tierckptd" || die "no agent of other $1"
}
none_attaches() {
    local pid
    for pid in "${trainers[@]}"; do
        wait "$pid" && die "a trainer attached: $(tail -n 2 "$work"/out."$launch".*)"
    done
}

ours=$(number runtime/base/message.h MESSAGE_FORMAT)
fault "another message format"
agent_of messages
begin 1
run_on m 0 --steps 4
none_attaches
must_say 0 "^ERROR attach: .*agent of node m uses message format 1002, the client uses format $ours"
logged m "HELLO .* refused: .*message format 1002, the client uses format $ours" || die "the agent's log does not say it"
kill_node m

ours=$(number tiers/peer_wire.h PEER_FORMAT)
fault "another peer format"
settings=',"session_wait_ms":3000'
begin 2
agent_of ""
run_on p 0 --steps 4
wait_for 60 grep -qs ' is ready at ' "$(agent_log p)" || die "no agent on p" # before the program is another one
agent_of peers
run_on q 1 --steps 4
none_attaches
for node in p q; do
    logged "$node" "format $ours\b.*format 1002\b|format 1002\b.*format $ours\b" || die "the log of $node does not name both"
done
must_say 0 '^ERROR attach: .*no session with node q'
kill_node p
kill_node q
settings=""

ours=$(number tiers/slot_header.h SLOT_FORMAT)
agent_of ""
begin 2
run_on a 0 --steps 20 --wait-commit
run_on b 1 --steps 20 --wait-commit
all_end
must_say 0 '^COMMITTED 20$'
from=1 into=1002 build_of=slots
for format in "$ours 1002 slots" "1002 $ours "; do # there, and back again
    read -r from into build_of <<<"$format"
    old=$(agent_pid a)
    before=$(fetched a "a peer")
    fault "slot format $into over memory of $from"
    agent_of "$build_of"
    kill -9 "$old"
    new_agent() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$old" ]; }
    wait_for 60 new_agent || die "the agent does not come back"
    log_must_say a 60 "parked segment .* is dropped: .*format $from, this build reads format $into"
    begin 2
    run_on a 0 --steps 21
    run_on b 1 --steps 21
    all_end
    for rank in 0 1; do
        [ "$(restored_step $rank)" = 20 ] || die "format $into: rank $rank restored $(restored_step $rank) instead of 20"
    done
    [ "$(fetched a "a peer")" -gt "$before" ] || die "format $into: not from the peer: $(out 0 | grep RESTORED)"
    [ "$(restored_from 0 storage)" = 0 ] || die "format $into: storage was used: $(out 0 | grep RESTORED)"
    log_must_say a 60 'has all its copies again'
done
