#!/usr/bin/env bash
# In a large world the leaders of groups of nodes relay messages between the coordinator and the others. A leader whose
# agent hangs, is killed, or is lost with its node takes no other node with it: its group is then connected with the
# coordinator directly.
. "$(dirname "$0")/lib.sh" "$1"
# Numbers 0 to 6: b (1) leads c and d, e (4) leads f and g. Copies go from d and g to a, and back, so these are connected.
settings=',"tree_from_nodes":3,"heartbeat_ms":200,"peer_timeout_ms":1500'
nodes=(a b c d e f g)
start_all() { # NODE in place of e, OPTIONS...
    local rank
    nodes[4]=$1
    shift
    begin 7
    for rank in "${!nodes[@]}"; do run_on "${nodes[rank]}" "$rank" "$@"; done
}
relayed='session with node a at [^ ]*, through another node$'
direct='session with node a at [^ ]*$'
start_all e --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
for node in c f; do
    logged $node "$relayed" || die "node $node is not reached through its leader: $(grep session "$(agent_log $node)")"
    logged $node "$direct" && die "node $node is connected with the coordinator from the beginning"
done
logged b "$direct" || die "the leader is not connected with the coordinator"

agent=$(agent_pid b)
moment
kill -STOP "$agent"
log_must_say c 60 "$direct"
kill -CONT "$agent"
more_commits a 3 60 || die "no commits after the leader goes on: $(tail -3 "$(agent_log b)")"
same_agent b "$agent" || die "the leader's agent was restarted"

# Through the agent that is started in its place, if that is there first.
sessions_of_f() { grep -c 'session with node a at' "$(agent_log f)"; }
has_another_session() { [ "$(sessions_of_f)" -gt "$before" ]; }
moment
before=$(sessions_of_f)
kill -9 "$(agent_pid e)"
wait_for 60 has_another_session || die "node f is not connected with the coordinator again: $(tail -3 "$(agent_log f)")"
more_commits a 3 60 || die "no commits after the other leader's agent was killed: $(tail -3 "$(agent_log f)")"
for node in c d f g; do
    logged a "node $node of term .* is lost" && die "node $node was taken for lost"
done

newest=$(newest_committed a)
moment
kill_node e
kill_trainers
start_all h --steps $((newest + 40)) --done
all_end
for rank in 0 1 2 3 4 5 6; do
    [ "$(restored_step $rank)" -ge "$newest" ] || die "rank $rank restored $(restored_step $rank), but $newest was committed"
done
