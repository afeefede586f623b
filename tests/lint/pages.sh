#!/usr/bin/env bash
# Pages can be read: no table cell over 120 characters and no paragraph over 8 lines in README.md and docs/: pages.sh [TOP]
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 1
git ls-files -z -- README.md 'docs/*.md' | xargs -0 python3 tests/lint/pages.py
