# A process is killed with -9 at each moment of a restore, as found in the coordinator's log. Each rank that restores in
# that launch, and all ranks in the next one, get the only version there is, to the bit. Sourced after lib.sh.
# shellcheck shell=bash

moments=("joined term" "has its memory" "recovery of term" "was fetched from" "can be read" "has all its copies again")
mem_interval=6
settings=',"max_restore_tries":1000000,"session_wait_ms":5000'
options=(--twins 3 --count $((1 << 20)) --step-ms 100)
saved="term=1 step=6" # nothing is saved after it, so every launch restores it

# react BYTES PATTERN MS COMMAND...: when the coordinator's log, longer than this, says it, and so long after that.
react() {
    local from=$1 pattern=$2 late_ms=$3
    shift 3
    # In a pipeline grep's end would go unnoticed until the log says something more.
    grep -m 1 -qE -- "$pattern" < <(exec timeout 60 tail -c +$((from + 1)) -F "$(agent_log a)" 2>/dev/null) &&
        sleep_ms "$late_ms" && "$@"
}
kill_agent() { local pid; pid=$(agent_pid "$1") && kill -9 $pid; }
# Rank 1's trainer of the launch that the caller, who is in the background, was started before.
kill_trainer() { wait_for 60 test -s "$work/pid.1" && kill -9 "$(cat "$work/pid.1")"; }
kill_all_of() { kill_trainer && kill_node "$1"; }

launch_all() {
    begin 3
    run_on a 0 "${options[@]}" "$@"
    run_on b 1 "${options[@]}" "$@"
    run_on c 2 "${options[@]}" "$@"
    echo "${trainers[1]}" >"$work/pid.1"
}
rank_is_through() { said "$1" '^(RESTORED|FRESH|EXIT)' 2>/dev/null; }
all_through() { rank_is_through 0 && rank_is_through 1 && rank_is_through 2; }
nothing_wrong() {
    local rank
    for rank in 0 1 2; do
        ! said "$rank" '^(WRONG|FRESH)' || die "$1: rank $rank: $(out "$rank" | grep -E '^(WRONG|FRESH)')"
        ! said "$rank" '^RESTORED' || said "$rank" "^RESTORED $saved" || die "$1: rank $rank $(out "$rank" | grep RESTORED)"
    done
}
first_launch() {
    launch_all --steps 6 --wait-commit
    all_end
    said 0 '^COMMITTED 6' || die "nothing was committed: $(out 0 | tail -3)"
}
protections() { grep -c 'has all its copies again' "$(agent_log a)"; }
protected_since() { [ "$(protections)" -gt "$1" ]; }
# restores_whole NAME: the launch after a kill. Before the next loss all copies must have been made again.
restores_whole() {
    local before
    before=$(protections)
    launch_all --steps 7
    wait_for 60 all_through || die "$1: the next launch does not restore: $(out 0 | tail -2)"
    nothing_wrong "$1, next launch"
    for rank in 0 1 2; do must_say "$rank" "^RESTORED $saved"; done
    all_end
    wait_for 60 protected_since "$before" || die "$1: the copies are not made again"
}
# kill_rounds NAME GOES_ON BEFORE COMMAND...: BEFORE runs before each launch, COMMAND at the moment. GOES_ON: the trainers
# are not ended with it, as a launcher would where one of them is dead, but find their own end.
kill_rounds() {
    local name=$1 goes_on=$2 before=$3 moment watcher in_term=0
    shift 3
    first_launch
    for moment in "${moments[@]}"; do
        $before
        rm -f "$work/pid.1"
        chance_ms 60
        react "$(wc -c <"$(agent_log a)")" "$moment" "$ms" "$@" &
        watcher=$!
        launch_all --steps 9 --step-ms 20000 # the victim is still there, however late the watcher comes
        wait "$watcher" || die "$name at '$moment': it did not come to that"
        if $goes_on; then
            wait_for 90 all_through || die "$name at '$moment': some rank hangs: $(tail -n 2 "$work"/out."$launch".*)"
            in_term=$((in_term + $(grep -l '^RESTORED' "$work"/out."$launch".* | wc -l)))
        fi
        nothing_wrong "$name at '$moment'"
        kill_trainers
        restores_whole "$name at '$moment'"
    done
    echo "$name: ${#moments[@]} kills, $in_term of $((3 * ${#moments[@]})) restores went on in their term"
}
