# Shared by the tests in which a job comes back with other ranks and another sharding; sourced after lib.sh.
# shellcheck shell=bash
trainer=$build/tests/cluster/cluster_grid
memory_cap=64MiB
# launch WORLD GRID OPTIONS...: on two nodes, or one.
launch() {
    local ranks half=$((($1 + 1) / 2)) world=$1 grid=$2
    shift 2
    begin "$world"
    run_on a "$(seq -s ' ' 0 $((half - 1)))" --grid "$grid" "$@"
    ranks=$(seq -s ' ' $half $((world - 1)))
    [ -z "$ranks" ] || run_on b "$ranks" --grid "$grid" "$@"
}
resharded() { # STEP FROM: on all ranks, with one record left
    for rank in $(seq 0 $((world - 1))); do
        must_say "$rank" "^RESTORED .*step=$1 resharded=1 from=$2 left=1 .* own=7$"
    done
}
