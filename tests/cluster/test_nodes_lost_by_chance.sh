#!/usr/bin/env bash
# Of six nodes one to three are lost at once, and the newest version that still exists is restored, repeatedly (SEED=n,
# ROUNDS=n). If every shard has a holder left, the newest committed version comes from memory, otherwise the newest
# published one is restored, and the log says what is missing.
. "$(dirname "$0")/lib.sh" "$1"
echo "seed $seed"
mem_interval=1 storage_interval=10
settings=',"max_ckpt_num":0'
nodes=(n1 n2 n3 n4 n5 n6) last_node=6 last_step=0 from_memory=0 from_storage=0

shuffle() { # LIST...: in another order; into `shuffled`
    local i j list=("$@")
    for ((i = $# - 1; i > 0; i--)); do
        j=$((RANDOM % (i + 1)))
        set -- "${list[i]}" "${list[j]}"
        list[i]=$2 list[j]=$1
    done
    shuffled=("${list[@]}")
}
is_published() { compgen -G "$work/save/test/v*$1.t*" >/dev/null; }
# save_some: a launch whose ranks sit anywhere; a version of it is published, and newer ones are in memory alone.
save_some() {
    local rank
    shuffle "${nodes[@]}"
    nodes=("${shuffled[@]}")
    last_step=$((last_step + 15 - last_step % 10))
    published=$((last_step - 5))
    begin 6
    for rank in 0 1 2 3 4 5; do
        run_on "${nodes[rank]}" "$rank" --count 4096 --steps "$last_step" --wait-commit
    done
    all_end
    must_say 0 "^COMMITTED $last_step\$"
    wait_for 60 is_published "$published" || die "seed $seed: step $published is not published: $(ls "$work/save/test")"
}
# survives NODE...: without these, every shard has a holder. Each node tells of its own shards.
survives() {
    local node
    for node in "${nodes_before[@]}"; do cat "$work/holders.$node"; done | python3 -c '
import json, sys
text, lost, holders = sys.stdin.read(), set(sys.argv[1:]), {}
while text.strip():
    answer, end = json.JSONDecoder().raw_decode(text.lstrip())
    text = text.lstrip()[end:]
    for shard in answer["shards"]:
        holders.setdefault(shard["shard"], set()).update(shard["holders"])
sys.exit(len(holders) != 6 or any(nodes <= lost for nodes in holders.values()))' "$@"
}
holders_told() {
    local node
    for node in "${nodes[@]}"; do
        ask "$node" --json show "$last_step" >"$work/holders.$node" && grep -q '"holders"' "$work/holders.$node" || return 1
    done
}

save_some
for round in $(seq "${ROUNDS:-3}"); do
    wait_for 60 holders_told || die "seed $seed: no holders of step $last_step: $(cat "$work"/holders.*)"
    nodes_before=("${nodes[@]}")
    shuffle 0 1 2 3 4 5
    victims=("${shuffled[@]:0:$((RANDOM % 3 + 1))}")
    lost=()
    for at in "${victims[@]}"; do
        lost+=("${nodes[at]}")
        last_node=$((last_node + 1))
        nodes[at]=n$last_node
    done
    expected=$last_step
    if survives "${lost[@]}"; then
        from_memory=$((from_memory + 1))
    else
        from_storage=$((from_storage + 1))
        expected=$published
        excused="both holders of a shard lost at once: newest published"
    fi
    moment
    for node in "${lost[@]}"; do kill_node "$node"; done
    save_some
    for rank in 0 1 2 3 4 5; do
        [ "$(restored_step $rank)" = "$expected" ] ||
            die "seed $seed round $round: lost ${lost[*]}: rank $rank restored $(restored_step $rank), not $expected"
    done
    echo "round $round: lost ${lost[*]}: restored $expected"
done
echo "$from_memory times from memory, $from_storage times from storage"
