#!/usr/bin/env bash
# No source files need each other in a circle, and no folders: circles.sh [TOP [BUILD]]
set -u
top=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
. "$top/tests/lib/find_build.sh"
build=$(find_build runtime/agent/tierckptd "${2:-}") || exit 1
[ -x "$build/runtime/agent/tierckptd" ] || { echo "$build has no agent: build it with TCK_AGENT=ON"; exit 1; }
cd "$top" && python3 tests/lint/circles.py "$build"
