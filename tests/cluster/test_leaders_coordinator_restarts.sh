#!/usr/bin/env bash
# The coordinator's agent dies and is started again: nodes that were connected with it through their leaders wait for
# these, so that they do not all connect with it directly.
. "$(dirname "$0")/lib.sh" "$1"
# Numbers 0 to 6: b (1) leads c and d, e (4) leads f and g. Copies go from d and g to a, and back, so these are connected.
settings=',"tree_from_nodes":3,"heartbeat_ms":200,"peer_timeout_ms":20000'
nodes=(a b c d e f g)
begin 7
for rank in "${!nodes[@]}"; do run_on "${nodes[rank]}" "$rank" --steps 100000 --step-ms 20; done
direct='session with node a at [^ ]*$'
relayed() { grep -c 'session with node a at [^ ]*, through another node$' "$(agent_log "$1")"; }
relayed_again() { [ "$(relayed "$1")" -gt "$2" ]; }
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
for round in 1 2; do
    before="$(relayed c) $(relayed f)"
    moment
    kill -9 "$(agent_pid a)"
    wait_for 60 relayed_again c "${before% *}" || die "c does not return through its leader: $(tail -3 "$(agent_log c)")"
    wait_for 60 relayed_again f "${before#* }" || die "f does not return through its leader: $(tail -3 "$(agent_log f)")"
    more_commits a 3 60 || die "no commits after the coordinator's agent was restarted, round $round: $(tail -3 "$(agent_log a)")"
done
for node in c f; do
    logged $node "$direct" && die "node $node was connected with the coordinator directly: $(grep session "$(agent_log $node)")"
done

# Stop reaches all of them, also those behind the leaders, whichever node is asked.
kill_trainers
refused_for_memory() { ! ask a stop >"$work/answer" 2>&1 && grep -q 'is only in memory and would be lost' "$work/answer"; }
wait_for 60 refused_for_memory || die "stop says of what memory alone has: $(cat "$work/answer")"
ask "$([ $((RANDOM % 2)) = 0 ] && echo a || echo e)" stop --force >"$work/answer" || die "stop --force: $(cat "$work/answer")"
gone() { local node; for node in "${nodes[@]}"; do no_agent "$node" || return 1; done; }
wait_for 60 gone || die "agents are there after stop: $(for node in "${nodes[@]}"; do agent_pid "$node"; done)"
