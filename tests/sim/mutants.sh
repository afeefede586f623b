#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Plants each fault of mutants.txt into a copy of one source file, links the simulator, or a unit test, with it and
# demands that it is found: the simulator says which promise was broken, and fails by itself, in one of the schedules
# that once found something or in the first of all others; of a unit test that it fails. Needs a build by Ninja, whose
# commands it reuses.
#
#   mutants.sh [source directory [build directory [seeds ["name ..."]]]]
set -u
. "$(dirname "$0")/../lib/find_build.sh"
source_dir=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
build_dir=$(find_build tests/sim/sim "${2:-}") || exit 1
seeds=${3:-600} only=${4:-} limit_s=120
[ -f "$build_dir/build.ninja" ] || { echo "skipped: $build_dir was not built by Ninja"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$build_dir" || exit 1

# plant NAME FILE SCRIPT TARGET: makes $work/NAME, which is the program of this target with the fault.
plant() {
    local name=$1 file=$2 script=$3 target=$4 object=$work/$1.o mutated=$work/$1.c commands compile link original
    sed -e "$script" "$source_dir/$file" > "$mutated"
    if cmp -s "$mutated" "$source_dir/$file"; then
        echo "$name: no longer applies to $file"
        return 1
    fi
    commands=$(ninja -t commands "$target") || return 1
    compile=$(grep -e "-c .*/$file\"\?\$" <<< "$commands" | tail -1)
    original=$(sed -n "s,.* -o \([^ ]*\) -c .*,\1,p" <<< "$compile")
    compile=$(sed -e "s,-c .*,," -e "s,-o [^ ]*,," -e "s,-MF [^ ]*,,;s,-MT [^ ]*,,;s,-MD,,;s,-Werror,," <<< "$compile")
    # It takes the place of the original, which is one of the program's own objects or in a library.
    link=$(grep -e "-o [^ ]*/$target " <<< "$commands" | tail -1 | sed -e "s,-o [^ ]*/$target ,$object -o $work/$name ," -e "s, $original , ,")
    # Ninja's lines are quoted for a shell.
    if [ -z "$compile" ] || [ -z "$link" ] ||
        ! sh -c "$compile -w \"\$@\"" sh -I"$(dirname "$source_dir/$file")" -c "$mutated" -o "$object" || ! sh -c "$link"; then
        echo "$name: does not build"
        return 1
    fi
}

# Prints the first failing seed's line; fails if the fault was not planted or not found.
simulate() {
    local name=$1 status
    plant "$@" sim || return 1
    (ulimit -t "$limit_s"; exec "$work/$name" --seeds "$source_dir/tests/sim/seeds.txt" --seed 1 --count "$seeds") > "$work/$name.out" 2>&1
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

# The same with one test of a unit test program, which has to pass without the fault.
test_alone() {
    local name=$1 target=$2 test=$3 file=$4 script=$5 program status
    program=$(ninja -t commands "$target" | sed -n "s,.* -o \([^ ]*/$target\) .*,\1,p" | tail -1)
    if [ ! -x "$program" ] || ! "$program" --filter "$test" > "$work/$name.unchanged" 2>&1; then
        echo "$name: without the fault, $target does not pass $test: $(tail -1 "$work/$name.unchanged" 2> /dev/null)"
        return 1
    fi
    plant "$name" "$file" "$script" "$target" || return 1
    (ulimit -t "$limit_s"; exec "$work/$name" --filter "$test") > "$work/$name.out" 2>&1
    status=$?
    if [ $status -ne 1 ]; then
        echo "$name: NOT FOUND by $test of $target, which ended with status $status"
        return 1
    fi
    echo "$name: $test fails"
}

# If the unchanged program broke a promise, every fault would count as found.
if ! tests/sim/sim --seeds "$source_dir/tests/sim/seeds.txt" --seed 1 --count 1 > "$work/unchanged" 2>&1; then
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
    if [[ $script =~ ^\ (unit_[a-z_0-9]+)\ ([a-z_0-9]+/[a-z_0-9]+)\ \|\ (.*)$ ]]; then
        { test_alone "$name" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$file" "${BASH_REMATCH[3]}" || touch "$work/$name.missed"; } &
    else
        { simulate "$name" "$file" "${script# }" || touch "$work/$name.missed"; } &
    fi
done < "$source_dir/tests/sim/mutants.txt"
wait
failed=$(find "$work" -name '*.missed' | wc -l)
echo "$count faults, $((count - failed)) found"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
