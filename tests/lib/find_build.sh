# The build directory that a script uses by default. Sourced, not run.
# shellcheck shell=bash

# find_build PROGRAM [DIR]: prints DIR, or of build and build/release the one in which PROGRAM is newest.
find_build() {
    local top newest="" dir
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    [ -z "${2:-}" ] || { cd "$2" && pwd; return; }
    for dir in "$top/build" "$top/build/release"; do
        [ ! -x "$dir/$1" ] || [[ -n $newest && $newest/$1 -nt $dir/$1 ]] || newest=$dir
    done
    [ -n "$newest" ] || { echo "neither build nor build/release has $1: build it or name the build directory" >&2; return 1; }
    echo "$newest"
}
