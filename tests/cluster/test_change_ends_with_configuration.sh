#!/usr/bin/env bash
# What `tierckpt config --set` has changed ends when the configuration gets another value of that key, also if the agents
# are started again for it: by a start that changes a fixed key, too, or by an operator who has edited the agent's file.
. "$(dirname "$0")/lib.sh" "$1"
has_value() { # NODE KEY VALUE
    ask "$1" --json config | python3 -c 'import json, sys
sys.exit(str(json.load(sys.stdin)[sys.argv[1]]) != sys.argv[2])' "$2" "$3"
}
run_both() {
    begin 2
    run_on a 0 --steps 100000 --step-ms 20
    run_on b 1 --steps 100000 --step-ms 20
}
all_have() { # KEY VALUE
    local node
    for node in a b; do wait_for 60 has_value $node "$1" "$2" || die "$1 on $node: $(ask $node --json config)"; done
}
run_both
wait_for 60 has_commits b 3 || die "no commit: $(out 1 | tail -3)"
ask b config --set save_mem_interval=7 >/dev/null || die "set: save_mem_interval"
ask b config --set max_ckpt_num=5 >/dev/null || die "set: max_ckpt_num"
all_have save_mem_interval 7
all_have max_ckpt_num 5

# A fixed key changes, and the interval does not: the agents are started again, and the change holds.
kill_trainers
settings=',"heartbeat_ms":333'
run_both
all_have heartbeat_ms 333
all_have save_mem_interval 7

# Both change: the interval is that of the start, and the change of another key holds.
kill_trainers
mem_interval=3
settings=',"heartbeat_ms":334'
run_both
all_have heartbeat_ms 334
log_must_say a 60 'save_mem_interval is 3: the configuration has changed since it was set to 7'
log_must_say b 60 'save_mem_interval is 3: the configuration has changed since it was set to 7'
more_commits b 3 60 || die "no commit: $(out 1 | tail -3)"
all_have save_mem_interval 3
all_have max_ckpt_num 5

# An agent that dies keeps the interval.
agent=$(agent_pid b)
kill -9 "$agent"
comes_back() { local pid; pid=$(agent_pid b); [ -n "$pid" ] && [ "$pid" != "$agent" ]; }
wait_for 60 comes_back || die "the agent is not started again"
all_have save_mem_interval 3
all_have max_ckpt_num 5
kill_trainers
