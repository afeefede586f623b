#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while, as many at a time as there are processors:
# run.sh SEED SECONDS. New findings stay in build/fuzz.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
seed=${1:-1} seconds=${2:-5}
command -v clang-14 >/dev/null || { echo "clang-14 is not installed"; exit 77; }
build=$top/build/fuzz
mkdir -p "$build"
cmake -S "$top" --preset fuzz >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
ninja -C "$build" fuzzers >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }
# fuzz TARGET: its output is in $build/NAME.log.
fuzz() {
    local target=$1 name
    name=$(basename "$target")
    mkdir -p "$build/corpus/$name"
    if "$target" -seed="$seed" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -artifact_prefix="$build/$name." \
        "$build/corpus/$name" "$top/tests/fuzz/corpus/${name#fuzz_}" >"$build/$name.log" 2>&1; then
        printf '%s: %s\n' "$name" "$(grep -E '^Done|^stat::number_of_executed_units|DONE' "$build/$name.log" | tail -1)"
    else
        tail -30 "$build/$name.log"
        echo "$name FAILED"
        touch "$build/failed"
    fi
}
rm -f "$build/failed"
for target in "$build"/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    fuzz "$target" &
done
wait
[ ! -e "$build/failed" ]
