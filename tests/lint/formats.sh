#!/usr/bin/env bash
# docs/formats.md has the format numbers of the code, and every message with its fields: formats.sh [TOP]
set -u
top=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
bad=0
while read -r file macro name; do
    code=$(sed -nE "s/^#define $macro +([0-9]+)u?\$/\1/p" "$top/$file")
    docs=$(sed -nE "s/^\| $name \| ([0-9]+) \|.*/\1/p" "$top/docs/formats.md")
    [ -n "$code" ] && [ "$code" = "$docs" ] || { echo "$name: '$docs' in docs/formats.md, $macro is '$code'"; bad=1; }
done <<'FORMATS'
tiers/slot_header.h SLOT_FORMAT slot header
runtime/agent/state/hard_state.c STATE_FORMAT stored agent state
runtime/base/message.h MESSAGE_FORMAT client messages
tiers/peer_wire.h PEER_FORMAT agent to agent
recovery/inventory.h INVENTORY_FORMAT inventory
tiers/manifest.h MANIFEST_FORMAT manifest
tiers/job_marker.c MARKER_FORMAT marker `.tierckpt`
recovery/catalog_codec.c VALUE_FORMAT catalog values
FORMATS
python3 "$top/tests/lint/formats.py" "$top" || bad=1
exit $bad
