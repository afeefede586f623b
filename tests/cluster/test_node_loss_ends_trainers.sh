#!/usr/bin/env bash
# on_node_loss "end_trainers": when a node is lost, the other agent ends its trainers and logs the reason. An agent that
# dies alone and is restarted by its supervisor is not a lost node; peer_timeout_ms leaves time for that on a busy
# machine. The other agent also ends its trainers if it was restarted meanwhile and knows nothing about that node.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"on_node_loss":"end_trainers","heartbeat_ms":200,"peer_timeout_ms":15000'
mem_interval=20 # more steps than these trainers, who do not wait for each other, drift apart
begin 2
run_on a "0" --steps 100000 --step-ms 20
run_on b "1" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
kill -9 "$(agent_pid b)"
more_commits a 3 60 || die "no commits after the agent of node b came back"
kill -0 "${trainers[0]}" || die "a trainer was ended though only the other node's agent had died"
moment
kill_node b
ended() { ! kill -0 "${trainers[0]}" 2>/dev/null; }
wait_for 60 ended || die "the trainer of the other node goes on: $(tail -3 "$(agent_log a)")"
logged a 'node b is lost .*ending the trainer of rank 0' || die "the log does not say why"
wait "${trainers[0]}" 2>/dev/null
kill_trainers

begin 2
run_on a "0" --steps 100000 --step-ms 20
run_on c "1" --steps 100000 --step-ms 20
more_commits a 3 60 || die "no commit: $(out 0 | tail -3)"
moment
agent=$(agent_pid a)
builtin kill -STOP "$agent"
kill_node c
kill -9 "$agent"
wait_for 60 ended || die "the trainer goes on without the other node: $(tail -3 "$(agent_log a)")"
logged a 'node c is lost \(no connection since.*ending the trainer of rank 0' || die "the log does not say why"
