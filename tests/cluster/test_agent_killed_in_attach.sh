#!/usr/bin/env bash
# An agent killed with -9 while its trainer is on its way into a term, before and in each of its questions (CLAIM, JOIN,
# REGISTER): the trainer asks the next agent again, on its own, and the launch goes on as if nothing had been.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"session_wait_ms":60000'
steps=0 newest=0
# Ranks meet after HELLO (1), CLAIM (2), JOIN (3), and before REGISTER twice (4, 5).
greetings() { cat "$(agent_log "$1")" 2>/dev/null | grep -c "trainer of rank $2 of 2 says hello" || true; }
# cut_off MEETINGS NODE RANK before|in: a question "in" which the agent dies is one that it does not read any more.
cut_off() {
    local node=$2 rank=$3 greeted agent pid
    case="$node killed $4 what follows meeting $1"
    steps=$((steps + 6))
    greeted=$(greetings "$node" "$rank")
    begin 2
    run_on a 0 --twins 2 --steps $steps --lockstep --wait-commit --hold-meet "$1"
    run_on b 1 --twins 2 --steps $steps --lockstep --wait-commit --hold-meet "$1"
    for pid in 0 1; do wait_for 60 said $pid '^HELD' || die "$case: rank $pid is not held: $(out $pid | tail -3)"; done
    agent=$(agent_pid "$node")
    [ -n "$agent" ] || die "$case: no agent"
    [ "$4" = before ] || kill -STOP "$agent"
    [ "$4" = in ] || kill -9 "$agent"
    touch "$work/oob.$launch/go"
    if [ "$4" = in ]; then
        waits() { grep -qE "^(poll|7|271|do_sys_poll)" "/proc/${trainers[$rank]}/wchan" "/proc/${trainers[$rank]}/syscall" 2>/dev/null; }
        wait_for 2 waits || true # where /proc does not tell, it may die a little before its trainer asks
        kill -9 "$agent"
    fi
    all_end
    [ "$(greetings "$node" "$rank")" -ge $((greeted + 2)) ] || die "$case: the next agent was not greeted: nothing was tested"
    for pid in 0 1; do
        [ "$launch" = 1 ] || [ "$(restored_step $pid)" = "$newest" ] ||
            die "$case: rank $pid restored $(restored_step $pid), but $newest was committed"
    done
    newest=$(newest_commit)
    [ "$newest" = $steps ] || die "$case: step $newest is the newest committed, not $steps: $(tail -n 3 "$work"/out."$launch".*)"
}
for node in "a 0" "b 1"; do
    # shellcheck disable=SC2086
    for meetings in 2 5; do
        cut_off $meetings $node before
        cut_off $meetings $node in
    done
done
cut_off 1 a 0 before
cut_off 1 a 0 in
cut_off 4 b 1 before
