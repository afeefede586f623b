#!/usr/bin/env bash
# Every C and CUDA file is as clang-format leaves it.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
command -v clang-format-14 >/dev/null || { echo "clang-format-14 is not installed"; exit 77; }
find include runtime tiers recovery bench examples tests -name '*.[ch]' -o -name '*.cu' | xargs clang-format-14 --dry-run --Werror
