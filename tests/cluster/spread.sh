# A node is lost and replaced; its twins' shards come from the other node's ranks, or from its agent. Sourced after lib.sh.
# shellcheck shell=bash

newest=0
options=(--twins 4 --count $((1 << 20)) --step-ms 20 --wait-commit)
# lose_and_restore LOST NEW: ranks 0 and 1 are on node b, which stays; 2 and 3 on one that is lost, then on a new one.
lose_and_restore() {
    local rank floor=$((newest + 8))
    begin 4
    run_on b "0 1" "${options[@]}" --steps 1000
    run_on "$1" "2 3" "${options[@]}" --steps 1000
    wait_for 60 has_committed "$floor" || die "no commit: $(out 3 | tail -3)"
    moment
    kill_node "$1"
    kill_trainers
    newest=$(newest_commit)
    begin 4
    run_on b "0 1" "${options[@]}" --steps $((newest + 20))
    run_on "$2" "2 3" "${options[@]}" --steps $((newest + 20))
    all_end
    for rank in 0 1 2 3; do
        [ "$(restored_step $rank)" -ge "$newest" ] ||
            die "rank $rank restored $(restored_step $rank), but $newest was committed"
        ! said $rank '^WRONG' || die "rank $rank: $(out $rank | grep WRONG)"
    done
    twin_used "$2" 2 3 || die "no twins' shard came from a twin: $(grep -h RESTORED "$work/out.$launch".[23])"
}
has_committed() { [ "$(sed -nE 's/^COMMITTED ([0-9]+)$/\1/p' "$work/out.$launch.3" | tail -1)" -ge "$1" ] 2>/dev/null; }
# Whether the ranks on this node found it lacking a shard when they asked: its agent may have been faster.
lacked() { logged "$1" 'rank [23] gets [1-9][0-9]* of [0-9]+ shards .* from other ranks'; }
# lose_until_lacked: nodes are lost and replaced until that was so.
lose_until_lacked() {
    local lost=a new
    for new in c d e f g h; do
        lose_and_restore $lost $new
        ! lacked $new || return 0
        lost=$new
    done
    die "the new node's agent was always faster than its ranks"
}
