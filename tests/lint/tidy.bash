#!/usr/bin/env bash
# clang-tidy finds nothing in the product's C files: tidy.bash [TOP [BUILD]]
# Slow (three CPU minutes), so a suite of its own.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
. tests/lib/find_build.sh
build=$(find_build runtime/agent/tierckptd "${2:-}") || exit 1
command -v clang-tidy-14 >/dev/null || { echo "clang-tidy-14 is not installed"; exit 77; }
[ -e "$build/compile_commands.json" ] || { echo "$build is not a build directory"; exit 1; }

# As many processes as there are processors take files. What analyzer.h tells of, its own files cannot be told.
tidy() { xargs -P "$(nproc)" -n 3 clang-tidy-14 --quiet -p "$build" "$@" 2>/dev/null; }
told="runtime/base/status.c runtime/client/oob.c"
# Files whose commands the build knows: a module that is not built here, for want of a toolkit, cannot be looked at.
built_files() {
    local file
    find runtime tiers recovery -name '*.c' | while read -r file; do
        if grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then echo "$file"; else echo "not built here: $file" >&2; fi
    done
}
built_files | grep -vxF "${told// /$'\n'}" | tidy --extra-arg=-include --extra-arg="$PWD/tests/lint/analyzer.h"
found=$?
echo "$told" | tidy || found=1
exit $found
