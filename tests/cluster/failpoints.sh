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

# The hit at which it comes: of a save the second, so that there is something committed that could be lost; the first
# headers are those of free slots.
hit_of() {
    case $1 in
    save.copying | save.sealing | header.unsealing) echo @3 ;;
    save.*) echo @2 ;;
    header.*) echo @30 ;;
    esac
}
cases() {
    local name kind
    while IFS=$'\t' read -r name kind _; do
        echo "$name=kill$(hit_of "$name")"
        case $name in # an agent's way back
        agent.* | parking.* | state.writing | enrol.allocating | enrol.form* | header.writ* | catalog.* | file.* | keeper.agent_died)
            echo "again:$name=kill"
            ;;
        keeper.start*) echo "again:$name=kill@2" ;; # the same process as before
        esac
        case $kind in
        call) printf '%s\n' "$name=EIO" "$name=ENOSPC" ;;
        bytes) echo "$name=corrupt$(hit_of "$name")" ;;
        step) echo "$name=sleep:300$(hit_of "$name")" ;;
        esac
    done < <("$agent" --failpoints)
}
in_order() { python3 -c 'import random, sys; l = sys.stdin.readlines(); random.Random(int(sys.argv[1])).shuffle(l); sys.stdout.writelines(l)' "$seed"; }
is_over() { # DONE
    if [ -n "$count" ]; then [ "$1" -ge "$count" ]; else [ $SECONDS -ge $limit_s ]; fi
}

come=0 skipped=0 bad=()
mapfile -t all < <(cases | in_order)
for one in "${all[@]}"; do
    ! is_over $((come + skipped + ${#bad[@]})) || break
    bash "$here/failpoint.sh" "$build" "$one" </dev/null
    case $? in
    0) come=$((come + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) bad+=("$one") ;;
    esac
done
for one in "${bad[@]}"; do echo "FAILED: tests/cluster/failpoint.sh $build $one"; done
echo "$come of ${#all[@]} failpoints came and did no harm, ${#bad[@]} did, $skipped were skipped"
[ ${#bad[@]} -eq 0 ]
