#!/usr/bin/env bash
# Each node reads its published files again without a request and repairs damaged ones from memory. A damaged file is
# rewritten with its original bytes from the same version in memory. Without that version it is reported, together with
# the version that is left, and stays as it is.
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
damage() { fault "a byte of a published file changed"; printf 'damaged!' | dd of="$1" bs=1 seek=200001 conv=notrunc status=none; }
either_logged() { logged a "$1" || logged b "$1"; }

file=$(ls "$work"/save/test/v*08.t*/*.safetensors | head -1) # which is in memory, too
cp "$file" "$work/whole"
damage "$file"
! cmp -s "$file" "$work/whole" || die "there is no damage"
wait_for 60 either_logged "published file is damaged: v0*8.t[0-9]*: $(basename "$file")" || die "no log tells of $file"
wait_for 60 either_logged "published file $(basename "$file") of version 1.8 was rewritten" || die "$file is not repaired"
cmp "$file" "$work/whole" || die "$file does not have the bytes that it had"
[ "$(scrub a files_repaired)$(scrub b files_repaired)" != 00 ] || die "the status does not count it"
ask a verify published >"$work/verify" || die "what is published is damaged: $(cat "$work/verify")"
grep -q '"op":"repair","phase":"result".*success' "$work"/save/test/audit.*.jsonl || die "no audit line tells of it"
[ -z "$(find "$work/save/test/stage" -type f)" ] || die "something is left: $(find "$work/save/test/stage")"

file=$(ls "$work"/save/test/v*04.t*/*.safetensors | head -1) # which is on storage alone
damage "$file"
cp "$file" "$work/damaged"
wait_for 60 either_logged "stays damaged \(this version is no longer in .* the newest other one is 1.8$" ||
    die "no log tells of $file"
cmp "$file" "$work/damaged" || die "$file was changed"
