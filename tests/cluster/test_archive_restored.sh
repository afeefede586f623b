#!/usr/bin/env bash
# All machines are lost, and save_dir has lost its newest versions. While the archive cannot be reached, a start says that it had a
# newer one and does not restore the older one that save_dir still has. Then the archive is back, and its version is
# restored; every byte is checked by the trainers.
. "$(dirname "$0")/lib.sh" "$1"
excused="versions in save_dir are deleted on purpose, after all machines are lost"
mem_interval=1 storage_interval=2
archive=$work/archive
settings=',"max_ckpt_num":0,"archive_dir":"'$archive'","save_archive_interval":4,"max_archive_num":0'

newest() { ls -d "$1/$job"/v*/ 2>/dev/null | sed -E 's,.*/v0*([0-9]+)\.t.*,\1,' | sort -n | tail -1; } # DIR
archived_at_least() { local step; step=$(newest "$archive"); [ "${step:-0}" -ge "$1" ]; }

begin 2
run_on a "0 1" --steps 100000 --step-ms 60 --lockstep
wait_for 60 archived_at_least 8 || die "nothing is archived: $(ask a status 2>&1; tail -5 "$(agent_log a)")"
kill_trainers
# What was copied last is noted in save_dir after it is there.
noted() { grep -qE "\"step\": *$(newest "$archive")\b" "$work/save/$job/archive"; }
wait_for 60 noted || die "save_dir does not know what was copied: $(cat "$work/save/$job/archive")"
sleep 1 # for a copy that was under way
wait_for 60 noted || die "save_dir does not know what was copied: $(cat "$work/save/$job/archive")"
kill_node a
step=$(newest "$archive")
for version in "$work/save/$job"/v*/; do
    [ "$((10#$(sed -E 's,.*/v0*([0-9]+)\..*,\1,' <<<"$version")))" -lt "$step" ] || rm -r "$version"
done
[ -n "$(newest "$work/save")" ] || die "save_dir has no older version"

mv "$archive" "$work/away"
fault "the archive cannot be reached"
ask b ls >"$work/said" 2>&1 && die "ls leaves the archive out and ends with 0"
grep -q "archive_dir $archive" "$work/said" || die "ls does not name the archive: $(cat "$work/said")"
ask b verify published >"$work/said" 2>&1 && die "verify leaves the archive out and ends with 0"
grep -q "archive_dir $archive" "$work/said" || die "verify does not name the archive: $(cat "$work/said")"
ask b forget >"$work/said" 2>&1 && die "forget leaves the archive out"
[ ! -e "$work/save/$job/forgotten" ] || die "forget was half done: $(cat "$work/said")"
storage_interval=0
begin 2
run_on b "0 1" --steps $((step + 2)) --done
none_ends_well "a version older than $step was restored"
must_say 0 "archive_dir $archive"
must_say 0 "was copied to the archive, and save_dir has none that is as new"
kill_node b

mv "$work/away" "$archive"
ask c verify published >"$work/said" 2>&1 || die "verify: $(cat "$work/said")"
begin 2
run_on c "0 1" --steps $((step + 2)) --done
all_end
[ "$(restored_step 0)" = "$step" ] || die "restored $(restored_step 0) instead of $step from the archive"
wait_for 60 no_agent c || die "the agent of c stays"

# A copy in the archive is damaged, of a version that save_dir has, too: verify reads it.
version=$(ls -d "$archive/$job"/v*/ | head -1)
printf 'damaged!' | dd of="$(ls "$version"/shard-* | head -1)" bs=1 seek=200001 conv=notrunc status=none
ask c verify published >"$work/said" 2>&1 && die "verify does not read the copies in the archive"
grep -q "^BAD: archive_dir $archive: $(basename "$version")" "$work/said" || die "verify: $(cat "$work/said")"
