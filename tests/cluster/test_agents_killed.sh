#!/usr/bin/env bash
# Commits continue in the same term each time that agents are killed: those of two nodes, the coordinator's among them,
# in turn and together, while training continues.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
for victims in a b "a b" b a "a b"; do
    moment
    for node in $victims; do kill -9 "$(agent_pid "$node")" && moment 300; done
    for node in a b; do
        more_commits "$node" 3 60 || die "killed $victims: no commits on $node: $(tail -3 "$(agent_log "$node")")"
    done
done
[ "$(grep -c 'claimed term' "$(agent_log a)")" = 1 ] || die "a new term was formed"
moment
restores_all
