#!/usr/bin/env bash
# Failpoints, one after the other in an order that the seed makes, for 90 seconds or as many as are asked for; whatever
# dies or fails there, nothing committed is lost and the job goes on: failpoints.sh BUILD SEED [--count N]
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/find_build.sh"
build=$(find_build tests/cluster/cluster_trainer "${1:-}") || exit 1
seed=${2:-1} count=${4:-}
limit_s=90
agent=$build/runtime/agent/tierckptd
"$agent" --failpoints >/dev/null 2>&1 || { echo "skipped: $build is built without failpoints"; exit 77; }

is_over() { # DONE
    if [ -n "$count" ]; then [ "$1" -ge "$count" ]; else [ $SECONDS -ge $limit_s ]; fi
}

come=0 skipped=0 bad=()
mapfile -t all < <("$agent" --failpoints | python3 "$here/failpoint_cases.py" "$seed")
[ ${#all[@]} -gt 60 ] || { echo "there are ${#all[@]} cases"; exit 1; }
for one in "${all[@]}"; do
    ! is_over $((come + skipped + ${#bad[@]})) || break
    bash "$here/failpoint.sh" "$build" "$one" </dev/null
    case $? in
    0) come=$((come + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) bad+=("$one") ;;
    esac
done
for one in "${bad[@]}"; do echo "FAILED: tests/cluster/failpoint.sh $build '$one'"; done
echo "$come of ${#all[@]} cases came and did no harm, ${#bad[@]} did, $skipped were skipped"
[ ${#bad[@]} -eq 0 ]
