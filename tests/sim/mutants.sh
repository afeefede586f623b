#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Plants each fault of mutants.txt into a copy of one source file, links the simulator (sim, or sim_agent) with it and
# demands that the simulator finds it: says which promise was broken, and fails by itself, in one of the schedules that
# once found something or in the first of all others. Needs a build by Ninja, whose commands it reuses.
#
#   mutants.sh [source directory [build directory [seeds ["name ..." [simulator]]]]]
set -u
. "$(dirname "$0")/../lib/find_build.sh"
source_dir=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
sim=${5:-sim}
build_dir=$(find_build "tests/$sim/$sim" "${2:-}") || exit 1
seeds=${3:-30000} only=${4:-} limit_s=120
[ -f "$build_dir/build.ninja" ] || { echo "skipped: $build_dir was not built by Ninja"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$build_dir" || exit 1
link=$(ninja -t commands $sim | grep -e "-o tests/$sim/$sim " | tail -1)

# Prints the first failing seed's line; fails if the fault was not planted or not found.
try() {
    local name=$1 file=$2 script=$3 object=$work/$1.o mutated=$work/$1.c
    sed -e "$script" "$source_dir/$file" > "$mutated"
    if cmp -s "$mutated" "$source_dir/$file"; then
        echo "$name: no longer applies to $file"
        return 1
    fi
    local compile
    compile=$(ninja -t commands $sim | grep -e "-c .*/$file\"\?\$" | tail -1 | sed -e "s,-c .*,," -e "s,-o [^ ]*,," -e "s,-MF [^ ]*,,;s,-MT [^ ]*,,;s,-MD,,;s,-Werror,,")
    # Ninja's line is quoted for a shell.
    if ! sh -c "$compile -w \"\$@\"" sh -I"$(dirname "$source_dir/$file")" -c "$mutated" -o "$object" ||
        ! sh -c "${link/-o tests\/$sim\/$sim /$object -o $work/$name }"; then
        echo "$name: does not build"
        return 1
    fi
    local status
    (ulimit -t "$limit_s"; exec "$work/$name" --seeds "$source_dir/tests/$sim/seeds.txt" --seed 1 --count "$seeds") > "$work/$name.out" 2>&1
    status=$?
    if [ $status -eq 1 ] && grep -q VIOLATION: "$work/$name.out"; then
        echo "$name: $(grep -m 1 VIOLATION: "$work/$name.out")"
        return 0
    fi
    case $status in
    0) echo "$name: NOT FOUND in $seeds schedules" ;;
    137 | 152) echo "$name: NOT FOUND in $limit_s s of processor time" ;;
    *) echo "$name: NOT FOUND, the simulator ended with status $status: $(tail -1 "$work/$name.out")" ;;
    esac
    return 1
}

# If the unchanged program broke a promise, every fault would count as found.
if ! "tests/$sim/$sim" --seeds "$source_dir/tests/$sim/seeds.txt" --seed 1 --count 1 > "$work/unchanged" 2>&1; then
    echo "the unchanged simulator fails: $(grep -m 1 VIOLATION: "$work/unchanged" || tail -1 "$work/unchanged")"
    exit 1
fi

count=0
while IFS='|' read -r name file script; do
    name=${name// /} file=${file// /}
    if [[ $name == \#* || -z $name || (-n $only && " $only " != *" $name "*) ]]; then
        continue
    fi
    count=$((count + 1))
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    { try "$name" "$file" "${script# }" || touch "$work/$name.missed"; } &
done < "$source_dir/tests/$sim/mutants.txt"
wait
failed=$(find "$work" -name '*.missed' | wc -l)
echo "$count mutants, $((count - failed)) found"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
