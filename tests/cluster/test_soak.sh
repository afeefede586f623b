#!/usr/bin/env bash
# Processes chosen by chance are killed, many times (SEED=n repeats a run, ROUNDS=n makes it longer), also while the
# job is still being formed: no committed version is lost.
. "$(dirname "$0")/lib.sh" "$1"
echo "seed $seed"
storage_interval=6
nodes=(a b) fresh=0 newest=0

start() { # OPTIONS...
    begin 4
    run_on "${nodes[0]}" "0 1" --twins 2 "$@"
    run_on "${nodes[1]}" "2 3" --twins 2 "$@"
}
new_node() { # INDEX: takes the place of one that is gone
    fresh=$((fresh + 1))
    nodes[$1]=fresh$fresh
}
parked_again() { [ "$(grep -c 'the new supervisor has every descriptor' "$(agent_log "$1")")" -gt "$2" ]; }
# hit KINDS: sets what. A supervisor, or a node, that is lost while the one before it is not made good yet is more than is
# promised; so a new supervisor is waited for, and nodes are lost only once there are commits.
hit() {
    local victim=$((RANDOM % 2)) parked
    local node=${nodes[victim]}
    parked=$(grep -c 'the new supervisor has every descriptor' "$(agent_log "$node")" 2>/dev/null)
    case $((RANDOM % $1)) in
    0) what="the trainers" ;;
    1) what="the agent of $node" && kill -9 $(agent_pid "$node") ;;
    2) what="both agents" && kill -9 $(agent_pid "${nodes[0]}") $(agent_pid "${nodes[1]}") ;;
    3) what="rank $((RANDOM % 4))" && kill -9 "${trainers[${what#rank }]}" && sleep 0.0$((RANDOM % 10)) ;;
    4)
        what="the supervisor of $node"
        kill -9 $(supervisor_pid "$node")
        wait_for 60 parked_again "$node" "${parked:-0}" || die "seed $seed: no new supervisor on $node"
        ;;
    5) what="node $node" && kill_node "$node" && new_node $victim ;;
    esac
}
check_restored() {
    local step
    step=$(restored_step 0)
    [ -z "$step" ] || [ "$step" -ge "$newest" ] || die "seed $seed: restored $step, but $newest was committed"
}

for round in $(seq "${ROUNDS:-5}"); do
    start --steps 100000 --step-ms 20 --wait-commit
    if [ "$round" -gt 1 ] && [ $((RANDOM % 3)) = 0 ]; then
        sleep 0.$((RANDOM % 10)) # into attach, registration or recovery
        hit 4
        kill_trainers
        check_restored
        echo "round $round: $what killed early"
        start --steps 100000 --step-ms 20 --wait-commit
    fi
    committed_beyond() { local step; step=$(newest_commit); [ "${step:-0}" -gt $((newest + 6)) ]; }
    wait_for 60 committed_beyond || die "seed $seed round $round: no commits: $(out 0 | tail -3)"
    check_restored
    hit 6
    kill_trainers
    newest=$(newest_commit)
    echo "round $round: $what killed, $newest was committed"
done
start --steps $((newest + 10)) --done
all_end
for rank in 0 1 2 3; do
    [ "$(restored_step $rank)" -ge "$newest" ] || die "seed $seed: restored $(restored_step $rank), but $newest was committed"
done
