#!/usr/bin/env bash
# Includes go one way, and each library has one door. base <- core <- agent; tiers and recovery see base and core, never
# each other; published sees base and what it is built of in tiers and recovery (which see base alone); client sees base and
# published; nothing includes agent. A library's header is included by one file of the product.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

# allowed FOLDER PATTERN [FILES]: project includes of the folder's files (of all, or those of a glob) match the pattern.
allowed() {
    local file include
    while IFS=: read -r file include; do
        [[ $include =~ ^($2)(/|$) || $include == tierckpt.h ]] || complain "$file includes $include: $1 may see only: $2"
    done < <(grep -rHoE '^#include "[^"]+"' "$1" --include="${3:-*.[ch]}" | sed -E 's/:#include "([^"]+)"/:\1/')
}
allowed runtime/base 'base'
allowed runtime/core 'base|core'
read_files='tiers/(archive_note|folder|folder_url|object/object_folder|object/object_store|object/s3_store|manifest|safe_fs|names|forgotten|published_versions|published_chunk).h'
allowed runtime/published "base|published|$read_files|recovery/reshard.h"
for file in folder folder_url manifest safe_fs names forgotten published_versions published_chunk; do allowed tiers "base|$read_files" "$file.[ch]"; done
allowed recovery 'base|recovery/reshard.h' 'reshard.[ch]'
allowed runtime/client 'base|client|published|cuda/(calls|kernels_core).h'
allowed runtime/nccl 'base|client'
allowed runtime/cuda 'cuda' 'kernels*' # nvcc's, and tests' on the host
allowed runtime/cuda 'cuda' 'calls*'
allowed tiers 'base|core|tiers'
allowed recovery 'base|core|recovery'
allowed runtime/agent 'base|core|tiers|recovery|agent'
allowed runtime/cli 'base|core|tiers|recovery|cli'

# door HEADER: at most one file of the product includes it.
door() {
    local files
    files=$(grep -rlE "^#include [<\"]([^>\"]*/)?$1[>\"]" include runtime tiers recovery --include='*.c' --include='*.h' --include='*.cu' | sort)
    [ "$(printf '%s' "$files" | grep -c .)" -le 1 ] || complain "$1 is included by more than one file:" $files
}
for header in ucp.h log_def.h c.h liburing.h microhttpd.h curses.h curl.h cuda_runtime.h cuda_runtime_api.h nccl.h cJSON.h crc.h xxhash.h hmac.h evp.h expat.h; do
    door "$header"
done
exit $bad
