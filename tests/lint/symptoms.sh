#!/usr/bin/env bash
# Each symptom that docs/troubleshooting.md explains is printed by the code.
top=${1:-$(dirname "$0")/../..}
exec python3 "$top/tests/lint/symptoms.py" "$top"
