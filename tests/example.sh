#!/usr/bin/env bash
# A program of others builds against an installed Tierckpt by CMake and by pkg-config, and its state survives it: example.sh [TOP [BUILD]]
set -u
top=$(cd "${1:-$(dirname "$0")/..}" && pwd) || exit 1
. "$top/tests/lib/find_build.sh"
build=$(find_build runtime/agent/tierckptd "${2:-}") || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

die() { echo "$*"; exit 1; }
# quietly COMMAND...: its output is shown only if it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; die "failed: $*"; }; }
# survives HOW PROGRAM: without TIERCKPT_BIN_DIR, so the library must find agent and supervisor where they were installed.
survives() { bash "$top/tests/unit/client/survivor.sh" "$2" "" || die "the example built by $1 does not survive"; }

quietly cmake --install "$build" --prefix "$prefix"
# As packages are made: staged below another root, used from there.
quietly env DESTDIR="$work/stage" cmake --install "$build" --prefix /opt/tierckpt
diff <(cd "$prefix" && find . | sort) <(cd "$work/stage/opt/tierckpt" && find . | sort) || die "DESTDIR installs something else"
rm -rf "$prefix" && mv "$work/stage/opt/tierckpt" "$prefix"
for file in libexec/tierckpt/{tierckptd,tierckpt-supervisor} bin/tierckpt include/tierckpt{,_version}.h; do
    [ -e "$prefix/$file" ] || die "$file is not installed"
done
[ ! -d "$build/man" ] || [ -e "$prefix/share/man/man8/tierckptd.8" ] || die "the manual pages are not installed"

quietly cmake -S "$top/examples/c" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$work/cmake"
survives CMake "$work/cmake/survivor"

pc=$(find "$prefix" -name tierckpt.pc) && [ -n "$pc" ] || die "tierckpt.pc is not installed"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
library_path=$(pkg-config --variable=libdir tierckpt) || die "pkg-config does not find tierckpt"
# shellcheck disable=SC2046 # flags are words
quietly c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags tierckpt) -x c++ - \
    <<<'#include <tierckpt.h>
        tck_record_t record = TCK_RECORD_INIT;'
# shellcheck disable=SC2046
quietly cc -o "$work/survivor" "$top/examples/c/survivor.c" $(pkg-config --cflags --libs tierckpt) -Wl,-rpath,"$library_path"
survives pkg-config "$work/survivor"
