#!/usr/bin/env bash
# Retention: versions beyond max_ckpt_num go, manifest first, and nothing in the bucket that Tierckpt did not put there:
# neither beside the job nor within a version, which then stays.
. "$(dirname "$0")/jobs.sh" "$1"
begin 2
run_on a 0 --steps 100000 --step-ms 100 --lockstep
run_on b 1 --steps 100000 --step-ms 100 --lockstep
more_published a 1 60
bucket put other/v000000000001.t1/shard-x theirs
bucket put "$job.more/manifest.json" theirs
bucket put "$job/notes.txt" theirs
bucket put "$job/v000000000001/manifest.json" theirs
version=$(bucket list | sed -nE 's,^(.*/v[0-9]+\.t1)/manifest.json$,\1,p' | tail -1)
bucket put "$version/notes.txt" theirs
more_published a 4 120
two_or_three() { [ "$(listed a | wc -w)" -le 3 ]; }
wait_for 60 two_or_three || die "max_ckpt_num is 2: $(listed a)"
for key in other/v000000000001.t1/shard-x "$job.more/manifest.json" "$job/notes.txt" "$job/v000000000001/manifest.json" \
    "$version/notes.txt"; do
    [ "$(bucket cat "$key")" = theirs ] || die "$key is gone: $(bucket list)"
done
kill_trainers
all_whole a
# The order, as the audit file has it, is that of the server's: what is left of an interrupted deletion is no version.
grep -q '"op":"delete"' "$work/run/$job/a/audit.jsonl" || die "the audit file on the node has no deletion: $(ls "$work/run/$job/a")"
no_secret
