#!/usr/bin/env bash
# Each failpoint is used exactly once, and a build for release has none: no code, no names: failpoints.sh [TOP [BUILD]]
set -u
top=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
. "$top/tests/lib/find_build.sh"
build=$(find_build runtime/client/libtierckpt.so "${2:-}") || exit 1
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

names=$(sed -nE 's/^ +X\(([a-z]+), ([a-z_]+), .*/\1, \2/p' "$top/runtime/base/failpoint_names.h" | sort)
used=$(cd "$top" && cat $(find runtime tiers recovery -name '*.c') | tr -d '\n' |
    grep -oE '\bfailpoint(_fails|_bytes)?\([a-z]+, *[a-z_]+' | sed -E 's/.*\(([a-z]+), */\1, /' | sort)
[ "$(grep -c . <<<"$names")" -ge 60 ] || complain "fewer than 60 failpoints"
diff <(echo "$names") <(echo "$used") || complain "(< in the table, > in the code: each must be there once)"

# The names also as they would stand in a string.
patterns=$(sed 's/, /./' <<<"$names"; printf '%s\n' TIERCKPT_FAILPOINT failpoint)
grep -q '^TCK_FAILPOINTS:BOOL=ON$' "$build/CMakeCache.txt" && { echo "$build is built with failpoints"; exit $bad; }
checked=0
stripped=$(mktemp) || exit 1
trap 'rm -f "$stripped"' EXIT
for program in runtime/client/libtierckpt.so runtime/agent/tierckptd runtime/agent/tierckpt-supervisor runtime/cli/tierckpt; do
    [ -e "$build/$program" ] || continue
    checked=$((checked + 1))
    strip -d -o "$stripped" "$build/$program" || complain "$program cannot be looked at"
    found=$(strings -a "$stripped" | grep -E '^[a-z]+\.[a-z_]+$|[Ff][Aa][Ii][Ll][Pp][Oo][Ii][Nn][Tt]' | grep -F "$patterns" | head -3)
    [ -z "$found" ] || complain "$program has failpoints in it: $found"
    found=$(nm "$build/$program" | grep -i failpoint | head -3)
    [ -z "$found" ] || complain "$program has failpoints in it: $found"
done
[ $checked -gt 0 ] || complain "$build has no program"
exit $bad
