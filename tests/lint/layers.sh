#!/usr/bin/env bash
# Includes go one way, and each library has one door. base <- core <- agent; tiers and recovery see base and core, never
# each other; client sees base only; nothing includes agent. A library's header is included by one file of the product.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

# allowed FOLDER PATTERN: project includes of the folder's files must match the pattern.
allowed() {
    local file include
    while IFS=: read -r file include; do
        [[ $include =~ ^($2)/ || $include == tierckpt.h ]] || complain "$file includes $include: $1 may see only: $2"
    done < <(grep -rHoE '^#include "[^"]+"' "$1" --include='*.c' --include='*.h' | sed -E 's/:#include "([^"]+)"/:\1/')
}
allowed runtime/base 'base'
allowed runtime/core 'base|core'
allowed runtime/client 'base|client'
allowed tiers 'base|core|tiers'
allowed recovery 'base|core|recovery'
allowed runtime/agent 'base|core|tiers|recovery|agent'
allowed runtime/cli 'base|core|tiers|recovery|cli'

# door HEADER: at most one file of the product includes it.
door() {
    local files
    files=$(grep -rlE "^#include [<\"]([^>\"]*/)?$1[>\"]" include runtime tiers recovery --include='*.c' --include='*.h' | sort)
    [ "$(printf '%s' "$files" | grep -c .)" -le 1 ] || complain "$1 is included by more than one file:" $files
}
for header in ucp.h c.h liburing.h curl.h cuda_runtime.h cuda_runtime_api.h nccl.h cJSON.h crc.h xxhash.h hmac.h evp.h; do
    door "$header"
done
exit $bad
