#!/usr/bin/env bash
# Each node reads the published files that it writes again, without being asked, and tells of one that was damaged.
. "$(dirname "$0")/lib.sh" "$1"
storage_interval=4
settings=',"scrub_storage_interval_s":1'
begin 2
run_on a "0" --steps 8 --wait-commit --wait-drained
run_on b "1" --steps 8 --wait-commit --wait-drained
all_end
scrub() { ask "$1" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["scrub"][sys.argv[1]])' "$2"; }
checked() { [ "$(scrub "$1" files_checked)" -ge 4 ]; } # both versions
for node in a b; do wait_for 60 checked $node || die "node $node does not look: $(ask $node --json status)"; done
[ "$(scrub a files_bad)$(scrub b files_bad)" = 00 ] || die "damage before any was done"
file=$(ls "$work"/save/test/v*08.t*/*.safetensors | head -1)
printf 'X' | dd of="$file" bs=1 seek=200001 conv=notrunc status=none
told() { logged a "published file is damaged: v0*8.t[0-9]*: $(basename "$file")" || logged b "published file is damaged: v0*8.t[0-9]*: $(basename "$file")"; }
wait_for 60 told || die "nobody tells of $file"
[ -e "$file" ] || die "the damaged file is gone"
