#!/usr/bin/env bash
# What `tierckpt config --set` has changed holds for the job: on every node, in an agent that is started again, and when
# the coordinator's node is lost and another one, which does not have the change, takes its place. It holds until the
# configuration of the starts changes.
. "$(dirname "$0")/lib.sh" "$1"
has_value() { # NODE KEY VALUE
    ask "$1" --json config | python3 -c 'import json, sys
sys.exit(str(json.load(sys.stdin)[sys.argv[1]]) != sys.argv[2])' "$2" "$3"
}
# The last so many steps that are committed there are those of this interval.
follows() { # NODE COUNT INTERVAL
    local step steps
    mapfile -t steps < <(committed_steps "$1" | tail -n "$2")
    [ ${#steps[@]} -eq "$2" ] || return 1
    for step in "${steps[@]}"; do [ $((step % $3)) = 0 ] || return 1; done
}
begin 2
run_on a 0 --steps 100000 --step-ms 20
run_on b 1 --steps 100000 --step-ms 20
wait_for 60 has_commits b 3 || die "no commit: $(out 1 | tail -3)"
ask b config --set save_mem_interval=7 | grep -q 'is set to 7 until the agents of the job end' || die "set: no answer"
ask b config --set max_ckpt_num=5 >/dev/null || die "set: max_ckpt_num"
for node in a b; do
    wait_for 60 has_value $node save_mem_interval 7 || die "$node does not know of the interval"
    wait_for 60 has_value $node max_ckpt_num 5 || die "$node does not know of max_ckpt_num"
done
wait_for 60 follows b 3 7 || die "steps $(committed_steps b | tail -4 | xargs) are committed, the interval is 7"

# The agent is started again with the file that it was given.
agent=$(agent_pid b)
moment
kill -9 "$agent"
comes_back() { local pid; pid=$(agent_pid "$1"); [ -n "$pid" ] && [ "$pid" != "$agent" ]; } # NODE
wait_for 60 comes_back b || die "the agent is not started again"
wait_for 60 has_value b save_mem_interval 7 || die "the agent of b has forgotten the interval"

# Another node leads, whose file says 2.
kill_node a
kill_trainers
begin 2
run_on c 0 --steps 100000 --step-ms 20
run_on b 1 --steps 100000 --step-ms 20
log_must_say c 60 'save_mem_interval is 7, as it was changed'
wait_for 60 has_value c max_ckpt_num 5 || die "the coordinator has max_ckpt_num of its file"
wait_for 60 follows c 3 7 || die "steps $(committed_steps c | tail -4 | xargs) are committed, the interval is 7"

# A file that says something else counts from its start on, also for an agent that could not write its own file and is
# started again.
kill_trainers
mem_interval=3
mkdir "$work/run/$job/c/config.json.agent" # in the way of the file
begin 2
run_on c 0 --steps 100000 --step-ms 20
run_on b 1 --steps 100000 --step-ms 20
log_must_say c 60 'this start changed save_mem_interval from 2 to 3'
wait_for 60 follows c 3 3 || die "steps $(committed_steps c | tail -4 | xargs) are committed, the interval is 3"
wait_for 60 has_value c max_ckpt_num 5 || die "a start has undone the change of another key"
log_must_say c 60 "this change also holds for an agent that is started again, but .*/config.json: Is a directory"
grep -qE '"save_mem_interval":\s*"?2\b' "$work/run/$job/c/config.json" || die "the file was written: $(cat "$work/run/$job/c/config.json")"
agent=$(agent_pid c)
kill -9 "$agent"
wait_for 60 comes_back c || die "the agent of c is not started again"
wait_for 60 has_value c save_mem_interval 3 || die "the agent of c has forgotten what the start changed"
kill_trainers
