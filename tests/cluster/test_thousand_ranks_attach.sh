#!/usr/bin/env bash
# 1,024 ranks on eight nodes attach. They reach each other by tck_bootstrap, so that each has at most nine connections,
# as in a world of 128 (RANKS=n for another number).
. "$(dirname "$0")/lib.sh" "$1"
ranks=${RANKS:-1024}
sanitized && ranks=64
nodes=(a b c d e f g h)

# attach WORLD: prints the most connections that any rank has.
attach() {
    local each=$(($1 / ${#nodes[@]})) i bad=0
    begin "$1"
    for i in "${!nodes[@]}"; do
        "$build/tests/cluster/cluster_crowd" --json "$(node_json "${nodes[i]}")" --oob "$work/oob.$launch" \
            --first $((i * each)) --end $(((i + 1) * each)) --world "$1" >"$work/out.$launch.$i" 2>&1 &
        trainers+=($!)
    done
    for i in "${trainers[@]}"; do wait "$i" || bad=1; done
    [ $bad = 0 ] || die "not all of $1 ranks have attached: $(grep -h ERROR "$work"/out."$launch".* | head -3)"
    [ "$(cat "$work"/out."$launch".* | grep -c ATTACHED)" -eq "$1" ] || die "not all of $1 ranks say that they have attached"
}
most_connections() { sed -nE 's/^ATTACHED .*connections=([0-9]+)$/\1/p' "$work"/out."$launch".* | sort -n | tail -1; }

for world in $((ranks / 8)) "$ranks"; do
    started=$(date +%s%N)
    attach "$world"
    echo "$world ranks: $(most_connections) connections at most, $((($(date +%s%N) - started) / 1000000)) ms"
    [ "$(most_connections)" -le 9 ] || die "a rank has $(most_connections) connections"
done
