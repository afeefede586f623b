#!/usr/bin/env bash
# The newest version of save_dir is restored no longer (max_restore_tries), and save_dir has lost those right before it.
# While the archive, which has one of them, cannot be reached, a start does not restore the older one that save_dir still has. Then
# the archive is back, and its version is restored.
. "$(dirname "$0")/lib.sh" "$1"
excused="a version that was restored too often is given up, and others are deleted in save_dir on purpose"
mem_interval=2 storage_interval=2
archive=$work/archive
settings=',"max_restore_tries":2,"max_ckpt_num":0,"archive_dir":"'$archive'","save_archive_interval":4,"max_archive_num":0'

copied() { ls -d "$archive/$job"/v*"$1".t* >"$work/said" 2>&1; } # STEP

for step in 4 8; do
    begin 1
    run_on a 0 --steps $step --wait-commit --wait-drained
    all_end
    wait_for 60 copied $step || die "step $step is not archived: $(ask a status 2>&1)"
done
kill_node a
rm -r "$work/save/$job"/v*[46].t*
[ "$(ls -d "$work/save/$job"/v*/ | wc -l)" = 2 ] || die "save_dir has not steps 2 and 8: $(ls "$work/save/$job")"

mem_interval=100 storage_interval=0
for try in 1 2; do
    begin 1
    run_on b 0 --steps 100000 --step-ms 1000 # dies before its next save
    wait_for 60 said 0 '^STEP' || die "try $try does not run: $(out 0)"
    kill_trainers
    [ "$(restored_step 0)" = 8 ] || die "try $try restored $(restored_step 0) instead of 8"
done
kill_node b

mv "$archive" "$work/away"
fault "the archive cannot be reached"
begin 1
run_on c 0 --steps 12 --done
none_ends_well "a version older than step 4 was restored"
must_say 0 "archive_dir $archive"
kill_node c

mv "$work/away" "$archive"
begin 1
run_on d 0 --steps 12 --done
all_end
[ "$(restored_step 0)" = 4 ] || die "restored $(restored_step 0) instead of 4 from the archive"
