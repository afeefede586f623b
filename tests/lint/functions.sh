#!/usr/bin/env bash
# No function of the product is longer than 55 lines.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
find runtime tiers recovery bench -name '*.c' -o -name '*.cu' | xargs awk '
    FNR == 1 { inside = 0 }
    /^[{]/ { inside = 1; start = FNR; next }
    /^[}]/ { if (inside && FNR - start - 1 > 55) { printf "%s:%d: %d lines\n", FILENAME, start, FNR - start - 1; bad = 1 } inside = 0 }
    END { exit bad }'
