#!/usr/bin/env bash
# Not a byte is left below save_dir: a job that is restarted claims its term nevertheless and continues from memory,
# and prune makes room.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount -t tmpfs -o size=8m tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/save"; }
storage_interval=4
settings=',"max_ckpt_num":0'
begin 1
run_on a 0 --steps 12 --step-ms 300 --wait-commit --wait-drained
all_end
fault "disk full to the last byte"
cat /dev/zero >"$work/save/other" 2>/dev/null
! { echo x >"$work/save/one_more"; } 2>/dev/null || [ ! -s "$work/save/one_more" ] || die "the disk is not full"
moment
begin 1
run_on a 0 --steps 16 --wait-commit
all_end
[ "$(restored_step 0)" = 12 ] || die "restored $(restored_step 0) instead of 12"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from memory"
must_say 0 '^COMMITTED 16$'
term=$(newest_term a)
log_must_say a 60 "term\.$term is claimed, but stays empty|the owner of term $term could not be written to storage yet"
before=$(df --output=avail "$work/save" | tail -1)
ask a prune --keep 1 >"$work/said" 2>&1 || die "prune: $(cat "$work/said")"
[ "$(find "$work/save/test" -maxdepth 1 -name 'v*' | wc -l)" = 1 ] || die "prune leaves $(ls "$work/save/test")"
[ "$(df --output=avail "$work/save" | tail -1)" -gt "$before" ] || die "prune made no room"
begin 1
run_on a 0 --steps 20 --wait-commit --wait-drained # with what was made room for
all_end
must_say 0 '^DRAINED 20$'
