#!/usr/bin/env bash
# Failpoints in an order that the seed decides, for 60 seconds or as many as requested; whatever dies or fails there,
# nothing committed is lost and the job continues: failpoints.sh BUILD SEED [--count N] [--jobs J]
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/find_build.sh"
build=$(find_build tests/cluster/cluster_trainer "${1:-}") || exit 1
seed=${2:-1} count='' jobs=2 limit_s=60
shift $(($# < 2 ? $# : 2))
while [ $# -gt 1 ]; do
    case $1 in
    --count) count=$2 ;;
    --jobs) jobs=$2 ;;
    *) echo "what is '$1'?"; exit 2 ;;
    esac
    shift 2
done
agent=$build/runtime/agent/tierckptd
"$agent" --failpoints >/dev/null 2>&1 || { echo "skipped: $build is built without failpoints"; exit 77; }
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT

is_over() { # BEGUN
    if [ -n "$count" ]; then [ "$1" -ge "$count" ]; else [ $SECONDS -ge $limit_s ]; fi
}

# Up to `jobs` at a time, each in a job of its own. What one says comes in one piece.
declare -A running=()
come=0 skipped=0 bad=()
end_one() {
    local pid status
    wait -n -p pid "${!running[@]}"
    status=$?
    case $status in
    0) come=$((come + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) bad+=("${running[$pid]}") ;;
    esac
    cat "$said/${running[$pid]//\//_}"
    unset "running[$pid]"
}

mapfile -t all < <("$agent" --failpoints | python3 "$here/failpoint_cases.py" "$seed")
[ ${#all[@]} -gt 60 ] || { echo "there are ${#all[@]} cases"; exit 1; }
begun=0
for one in "${all[@]}"; do
    ! is_over $begun || break
    [ ${#running[@]} -lt "$jobs" ] || end_one
    bash "$here/failpoint.sh" "$build" "$one" >"$said/${one//\//_}" 2>&1 </dev/null &
    running[$!]=$one
    begun=$((begun + 1))
done
while [ ${#running[@]} -gt 0 ]; do end_one; done
for one in "${bad[@]}"; do echo "FAILED: tests/cluster/failpoint.sh $build '$one'"; done
echo "$come of ${#all[@]} cases came and did no harm, ${#bad[@]} did, $skipped were skipped"
[ ${#bad[@]} -eq 0 ]
