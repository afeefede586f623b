#!/usr/bin/env bash
# All nodes lost: the shard that all ranks have is read from storage by one node and passes along a tree of the others,
# a -> b, c and b -> d. Then the agent in the middle is killed while it passes: every rank gets the version, to the bit.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_restore.sh"
storage_interval=4
options=(--twins 4 --count $((8 << 20)) --step-ms 50) # 32 MiB: several chunks
nodes=(a b c d)

launch_four() {
    local rank
    begin 4
    for rank in 0 1 2 3; do
        run_on "${nodes[rank]}" $rank "${options[@]}" "$@"
    done
}
all_restored() {
    local rank
    for rank in 0 1 2 3; do
        said $rank '^(RESTORED|FRESH|EXIT|WRONG)' || return 1
    done
}
lose_all() {
    local node
    for node in "${nodes[@]}"; do
        kill_node $node
    done
}
check_all() { # NAME
    local rank
    for rank in 0 1 2 3; do
        ! said $rank '^WRONG' || die "$1: rank $rank: $(out $rank | grep WRONG)"
        must_say $rank '^RESTORED .*step=4 '
    done
}
passes_on() { # from the node before, in the tree
    logged b ' was fetched from a twin a$' && logged c ' was fetched from a twin a$' && logged d ' was fetched from a twin b$'
}

launch_four --steps 4 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 4$'
lose_all
launch_four --steps 4
wait_for 90 all_restored || die "the restore hangs: $(tail -n 2 "$work"/out."$launch".*)"
check_all "without a loss"
all_end
wait_for 60 passes_on || die "the shard does not pass along the tree: $(grep -h 'was fetched' "$work"/run/"$job"/*/agent.log)"
shard=$(sed -nE 's/.*shard ([0-9a-f]+) .* was fetched from a twin b$/\1/p' "$(agent_log d)" | tail -1)
[ "$(cat "$work"/run/"$job"/*/agent.log | grep -c "shard $shard .* was fetched from storage")" = 1 ] ||
    die "storage is read more than once"
for round in 1 2 3; do
    lose_all
    chance_ms 120
    react "$(wc -c <"$(agent_log a)")" "recovery of term" "$ms" kill_agent b &
    watcher=$!
    launch_four --steps 5 --step-ms 20000
    wait "$watcher" || die "round $round: there was no recovery"
    wait_for 90 all_restored || die "round $round: some rank hangs: $(tail -n 2 "$work"/out."$launch".*)"
    check_all "round $round"
    kill_trainers
done
