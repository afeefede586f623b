#!/usr/bin/env bash
# libtierckpt.so exports exactly the functions that tierckpt.h declares: symbols.sh [TOP [BUILD]]
set -u
top=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
. "$top/tests/lib/find_build.sh"
build=$(find_build runtime/client/libtierckpt.so "${2:-}") || exit 1
library=$build/runtime/client/libtierckpt.so
header=$top/include/tierckpt.h
declared=$(sed -n 's/^TCK_API .*\b\(tck_[a-z_]*\)(.*/\1/p' "$header" | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
[ -n "$declared" ] || { echo "no declarations found in $header"; exit 1; }
diff <(echo "$declared") <(echo "$exported") && exit 0
echo "(< declared in $header, > exported by $library)"
exit 1
