#!/usr/bin/env bash
# Versions go to save_dir, and every eighth step also to archive_dir. Agents are killed while copies are made: no version
# is seen by half. Then save_dir loses its newest version, one of its files, and all: each time a new machine restores
# what is newest and whole.
. "$(dirname "$0")/lib.sh" "$1"
excused="versions in save_dir are damaged and deleted on purpose, after all machines are lost"
mem_interval=1 storage_interval=2
archive=$work/archive
settings=',"max_ckpt_num":2,"archive_dir":"'$archive'","save_archive_interval":8,"max_archive_num":2'

archived() { ls -d "$archive/$job"/v*/ 2>/dev/null | sed -E 's,.*/v0*([0-9]+)\.t([0-9]+)/,\1,' | sort -n | tail -1; }
archived_at_least() { [ "$(archived || true)" ] && [ "$(archived)" -ge "$1" ]; }
whole() { ask "$1" verify published >"$work/said" 2>&1 || die "verify: $(cat "$work/said")"; }

# Both places, and both nodes copy their shard.
begin 2
run_on a 0 --steps 100000 --step-ms 60 --lockstep
run_on b 1 --steps 100000 --step-ms 60 --lockstep
wait_for 60 archived_at_least 8 || die "nothing is archived: $(ask a status 2>&1; tail -5 "$(agent_log a)")"
for node in b a; do
    before=$(archived)
    builtin kill -9 "$(agent_pid $node)"
    fault "kill the agent of $node"
    wait_for 60 archived_at_least $((before + 8)) || die "no copy after the agent of $node was killed: $(ask a status 2>&1)"
done
ask a status >"$work/said" || die "status: $(cat "$work/said")"
grep -q '^archive_dir: newest version' "$work/said" || die "status does not name the archive: $(cat "$work/said")"
ask a doctor 2>&1 | grep -q "archive_dir $archive can be written" || die "doctor does not look at the archive"
whole_copy() { [ -f "$1/manifest.json" ] && [ "$(ls "$1"/shard-* 2>/dev/null | wc -l)" = 2 ]; }
for version in "$archive/$job"/v*/; do # retention may delete one of them meanwhile
    whole_copy "$version" || [ ! -d "$version" ] || die "half a version: $(ls "$version")"
done

# The archive goes away: status warns, and its exit status stays 0, as probes ask for it.
warns() { ask a status 2>&1 | grep -q '^WARNING: archive_dir is not up to date'; }
mv "$archive" "$work/away" && ln -s "$work/nowhere" "$archive"
wait_for 60 warns || die "no warning of an archive that cannot be reached: $(ask a status 2>&1)"
warns_only() { ask a status >"$work/said" 2>&1 && grep -q '^WARNING: archive_dir is not up to date' "$work/said"; }
wait_for 60 warns_only || die "the exit status is not 0 without the archive: $(cat "$work/said")"
kill_trainers
kill_node a
kill_node b

# The archive still cannot be reached, and save_dir is used; no version is treated as missing.
begin 2
newest=$(ls -d "$work/save/$job"/v*/ | sed -E 's,.*/v0*([0-9]+)\..*,\1,' | sort -n | tail -1)
storage_interval=0
run_on c "0 1" --steps $((newest + 2)) --done
all_end
[ "$(restored_step 0)" = "$newest" ] || die "restored $(restored_step 0) without the archive, and $newest is in save_dir"
wait_for 60 no_agent c || die "the agent of c stays"
rm "$archive" && mv "$work/away" "$archive"

# save_dir has lost all that is newer than the archive: a new machine takes that from there.
in_archive=$(archived)
cp -a "$work/save" "$work/whole"
for version in "$work/save/$job"/v*/; do
    step=$((10#$(sed -E 's,.*/v0*([0-9]+)\..*,\1,' <<<"$version")))
    [ "$step" -lt "$in_archive" ] || rm -r "$version"
done
rm -f "$work/save/$job/LATEST"
ask d ls >"$work/said" 2>&1 || die "ls: $(cat "$work/said")"
grep -q archive_dir "$work/said" || die "ls does not list the archive: $(cat "$work/said")"
whole d
begin 2
run_on d "0 1" --steps $((in_archive + 2)) --done
all_end
[ "$(restored_step 0)" = "$in_archive" ] || die "restored $(restored_step 0) instead of $in_archive from the archive"
wait_for 60 no_agent d || die "the agent of d stays"

# save_dir is empty: its first term is above those in the archive.
rm -rf "$work/save" && mkdir "$work/save"
begin 2
run_on e "0 1" --steps $((in_archive + 2)) --done
all_end
[ "$(restored_step 0)" = "$in_archive" ] || die "restored $(restored_step 0) instead of $in_archive with an empty save_dir"
wait_for 60 no_agent e || die "the agent of e stays"

# The newest version of save_dir is in the archive, too, and its file here has other bytes.
rm -rf "$work/save" && mkdir -p "$work/save/$job"
cp -a "$work/whole/$job"/.tierckpt "$work/whole/$job"/term.* "$work/whole/$job"/secret "$work/save/$job/"
cp -a "$archive/$job"/v*"$(printf %05d "$in_archive")".t* "$work/save/$job/"
file=$(ls "$work/save/$job"/v*/shard-* | head -1)
printf 'damaged!' | dd of="$file" bs=1 seek=200001 conv=notrunc status=none
begin 2
run_on f "0 1" --steps $((in_archive + 2)) --done
all_end
[ "$(restored_step 0)" = "$in_archive" ] || die "restored $(restored_step 0) instead of $in_archive past a damaged file"
log_must_say f 60 'reading it from archive_dir'
