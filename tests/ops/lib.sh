# Shared by the tests with Prometheus: its programs, from the PATH or from build/ops (deploy/lib.sh). Sourced.
# shellcheck shell=bash
ops_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:$ops_top/build/ops/usr/bin
# needs PROGRAM...
needs() { local program; for program in "$@"; do command -v "$program" >/dev/null || { echo "skipped: $program is not installed"; exit 77; }; done; }
