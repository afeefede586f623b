# An agent is killed with -9 while its trainer is joining a term, before or during one of its requests. Sourced after
# lib.sh.
# shellcheck shell=bash

settings=',"session_wait_ms":60000,"max_ckpt_num":0'

greetings() { cat "$(agent_log "$1")" 2>/dev/null | grep -c "trainer of rank $2 of 2 connected" || true; }
# Asleep in poll, as one is who waits for the agent: the other waits of a trainer are naps.
polls() { grep -qsE "^(7|271) |poll" "/proc/$1/syscall" "/proc/$1/wchan"; }

# cut_off MEETINGS NODE RANK before|in OPTIONS...: both ranks are held when they have met so often; then the agent of that
# rank dies, before it is asked for what comes next, or having been asked (it stands still, so it never answers).
cut_off() {
    local meetings=$1 node=$2 rank=$3 how=$4 greeted agent r
    shift 4
    case="$node killed $how what follows meeting $meetings"
    begin 2
    run_on a 0 --twins 2 --lockstep --wait-commit --wait-drained --hold-meet "$meetings" "$@"
    run_on b 1 --twins 2 --lockstep --wait-commit --wait-drained --hold-meet "$meetings" "$@"
    for r in 0 1; do wait_for 60 said $r '^HELD' || die "$case: rank $r is not held: $(out $r | tail -3)"; done
    greeted=$(greetings "$node" "$rank") agent=$(agent_pid "$node")
    [ -n "$agent" ] || die "$case: no agent"
    if [ "$how" = before ]; then
        kill -9 "$agent"
        touch "$work/oob.$launch/go"
    else
        kill -STOP "$agent"
        touch "$work/oob.$launch/go"
        wait_for 2 polls "${trainers[$rank]}" || true # where /proc does not tell, it dies a little before it is asked
        kill -9 "$agent"
    fi
    all_end
    [ "$(sed -nE 's/.* is ready at (.*) \(pid .*/\1/p' "$(agent_log "$node")" | tail -2 | uniq | wc -l)" = 1 ] ||
        die "$case: the next agent is reached elsewhere, where those who know the address do not look"
    [ "$(greetings "$node" "$rank")" -gt "$greeted" ] || die "$case: the next agent was not greeted: nothing was tested"
}
