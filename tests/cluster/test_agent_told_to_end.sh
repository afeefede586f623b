#!/usr/bin/env bash
# An agent that is asked to exit shuts down in order, whatever is in progress: saves, copies to another node, drains.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=1 storage_interval=1
settings=',"copies":2'
for round in 1 2 3 4; do
    begin 2
    run_on a 0 --steps 100000 --step-ms 5 --count 1000000 --no-restore --lockstep
    run_on b 1 --steps 100000 --step-ms 5 --count 1000000 --no-restore --lockstep
    wait_for 60 grep -q 'is published' "$work/run/test/a/agent.log" || die "round $round: nothing published"
    moment 1000
    for node in $([ $((round % 2)) -eq 0 ] && echo a b || echo b a); do
        kill -TERM "$(agent_pid "$node")"
    done
    for node in a b; do
        wait_for 60 no_agent "$node" || die "round $round: the agent of node $node does not leave"
        wait_for 60 grep -q 'exited with status 0' "$work/run/test/$node/supervisor.log" || die "round $round: $node did not end well"
        mv "$work/run/test/$node/agent.log" "$work/run/test/$node/agent.log.$round"
        rm "$work/run/test/$node/supervisor.log"
    done
    kill_trainers
done
