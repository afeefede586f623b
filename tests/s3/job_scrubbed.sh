#!/usr/bin/env bash
# Each node reads again what it has put into the bucket, without a request. What was damaged there is put again from the
# same version in memory, with its original bytes. Without that version it is reported and stays as it is.
. "$(dirname "$0")/jobs.sh" "$1"
settings=$settings',"scrub_storage_interval_s":1'
begin 2
run_on a "0" --steps 8 --wait-commit --wait-drained
run_on b "1" --steps 8 --wait-commit --wait-drained
all_end
scrub() { ask "$1" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["scrub"][sys.argv[1]])' "$2"; }
checked() { [ "$(scrub "$1" files_checked)" -ge 4 ]; } # both versions
for node in a b; do wait_for 60 checked $node || die "node $node has not scrubbed: $(ask $node --json status)"; done
[ "$(scrub a files_bad)$(scrub b files_bad)" = 00 ] || die "damage before any was done"
damage() { fault "a byte of a published object changed"; bucket damage "$1"; }
either_logged() { logged a "$1" || logged b "$1"; }
object_of() { bucket list | grep -E "/v0*$1\.t[0-9]+/shard" | head -1; } # STEP

object=$(object_of 8) # which is in memory, too
damage "$object"
wait_for 60 either_logged "published file is damaged: v0*8.t[0-9]*: $(basename "$object")" || die "no log mentions $object"
wait_for 60 either_logged "published file $(basename "$object") of version 1.8 was rewritten" || die "$object is not repaired"
[ "$(scrub a files_repaired)$(scrub b files_repaired)" != 00 ] || die "the status does not count it"
all_whole a

object=$(object_of 4) # which is in the bucket alone
damage "$object"
wait_for 60 either_logged "stays damaged \(this version is no longer in .* the newest other one is 1.8$" ||
    die "no log mentions $object"
! ask a verify published >"$work/said" 2>&1 || die "the damage is gone"
grep -q "^BAD: .*$(basename "$object")" "$work/said" || die "verify: $(cat "$work/said")"
no_secret
