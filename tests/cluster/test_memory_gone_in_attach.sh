#!/usr/bin/env bash
# If agent and supervisor of a node die while its trainer is joining a term, all trainers get an error at once. They do
# not wait for session_wait_ms, and the next launch continues.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"session_wait_ms":600000'
steps=0 newest=0
# The other agent knows that the node's agent is gone, or never had a session with it.
noticed() { ! grep -E "node $1 is (up|down)" "$(agent_log "$2")" | tail -1 | grep -q 'is up'; }
fails_plainly() { # MEETINGS NODE OTHER-RANK
    local r before=$newest
    steps=$((steps + 4))
    begin 2
    run_on a 0 --twins 2 --lockstep --steps 10000 --hold-meet "$1"
    run_on b 1 --twins 2 --lockstep --steps 10000 --hold-meet "$1"
    for r in 0 1; do wait_for 60 said $r '^HELD' || die "rank $r is not held: $(out $r | tail -3)"; done
    kill_node "$2"
    wait_for 60 noticed "$2" "$([ "$2" = a ] && echo b || echo a)" || die "the other agent does not notice that $2 is gone"
    touch "$work/oob.$launch/go"
    for r in 0 1; do wait_for 120 said $r '^EXIT' || die "node $2, meeting $1: rank $r hangs: $(out $r | tail -3)"; done
    must_say "$3" "ERROR .*node $2 has lost its agent and its memory since term [0-9]+ was formed: attach again"
    must_say $((1 - $3)) "ERROR .* was formed with another agent of node $2, whose memory is lost: attach again"
    begin 2
    run_on a 0 --twins 2 --lockstep --wait-commit --steps $steps
    run_on b 1 --twins 2 --lockstep --wait-commit --steps $steps
    all_end
    for r in 0 1; do
        [ "$before" = 0 ] || [ "$(restored_step $r)" = "$before" ] ||
            die "node $2, meeting $1: rank $r restored $(restored_step $r), but $before was committed"
    done
    newest=$(newest_commit)
}
for meetings in 2 4; do
    fails_plainly $meetings b 0
    fails_plainly $meetings a 1
done
