#!/usr/bin/env bash
# The archive is a directory that is found and listed, and then hangs when a manifest is read, of a version that only it
# has. A start does not wait for it longer than a quarter of storage_timeout_ms: it restores the newest version of
# save_dir, which is as new as what was copied, saves, and publishes there. Once the archive answers again, it gets copies.
. "$(dirname "$0")/lib.sh" "$1"
lying_at=$work/archive
. "$(dirname "$0")/lying.sh"
mem_interval=1 storage_interval=2
settings=',"storage_timeout_ms":20000,"max_ckpt_num":1,"archive_dir":"'$work/archive'","save_archive_interval":4,"max_archive_num":0'

archived() { ls -d "$work/archive/$job"/v*/ 2>/dev/null | sed -E 's,.*/v0*([0-9]+)\.t.*,\1,' | sort -n | tail -1; }
archived_at_least() { local step; step=$(archived); [ "${step:-0}" -ge "$1" ]; }

begin 2
run_on a "0 1" --steps 100000 --step-ms 60 --lockstep
wait_for 60 archived_at_least 8 || die "nothing is archived: $(ask a status 2>&1; tail -5 "$(agent_log a)")"
only_archived() { # some version
    local copy
    for copy in "$work/archive/$job"/v*/; do [ -d "$work/save/$job/$(basename "$copy")" ] || return 0; done
    return 1
}
wait_for 60 only_archived || die "save_dir has all versions of the archive: $(ls "$work/save/$job" "$work/archive/$job")"
before=$(archived)
kill_trainers
kill_node a
newest=$(ls -d "$work/save/$job"/v*/ | sed -E 's,.*/v0*([0-9]+)\..*,\1,' | sort -n | tail -1)
# With more versions in save_dir than a start looks at, it looks at none in the archive that is as old.
for dir in "$work/save/$job"/v*/; do [[ $dir =~ /v0*$newest\. ]] || rm -r "$dir"; done

fault "manifests in the archive hang"
lie 1000 HANG manifest.json "" look,open,read 600000
begin 2
run_on b "0 1" --steps 100000 --step-ms 60 --lockstep
wait_for 60 said 0 '^RESTORED' || die "no restore beside an archive that hangs: $(out 0 | tail -3; tail -5 "$(agent_log b)")"
[ "$(restored_step 0)" = "$newest" ] || die "restored $(restored_step 0), and $newest is in save_dir"
logged b 'going on with save_dir alone.*archive' || die "the log does not say why save_dir alone counts"
! logged b 'save/test does not answer' || die "an error names save_dir: $(grep 'does not answer' "$(agent_log b)")"
log_must_say b 60 'is published'

lie 0
wait_for 90 archived_at_least $((before + 4)) || die "no copy since the archive answers: $(ask b status 2>&1)"
kill_trainers
