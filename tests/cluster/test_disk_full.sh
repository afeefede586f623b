#!/usr/bin/env bash
# The file system of save_dir is full: the drain fails with a line that says so, commits to memory continue, and when
# there is room again the next drain publishes.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount -t tmpfs -o size=9m tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/save"; }
storage_interval=10
settings=',"max_ckpt_num":2' # so with the one being written, three must fit, or it is soon full again
fault "disk full"
head -c 8M /dev/zero >"$work/save/other"
begin 2
run_on a "0 1" --steps 100000 --step-ms 20 --lockstep
log_must_say a 60 '(drain|published).*[Nn]o space left'
ask a doctor >"$work/said" && die "doctor finds nothing wrong with a full disk"
grep -Eq '^BAD +room for versions .*so with the one being written .* more are needed, and .* are free' "$work/said" || die "doctor: $(cat "$work/said")"
before=$(commits a)
more_commits a 5 60 || die "no commit since the disk is full ($before before)"
! logged a 'is published' || die "published on a full disk"
wait_for 60 said 0 "^HEALTH .*undrained=[1-9].* $work/save/test/.*[Nn]o space left" || die "rank 0 is not told: $(out 0 | tail -3)"
wait_for 60 said 1 "^HEALTH .*undrained=[1-9]" || die "rank 1 is not told"
! ask a status >"$work/said" || die "status is good though the disk is full"
grep -q "storage has been failing since .*$work/save/test/.*[Nn]o space left" "$work/said" || die "status does not say it: $(cat "$work/said")"
moment
rm "$work/save/other"
log_must_say a 60 'is published'
wait_for 60 said 0 '^HEALTH good' || die "rank 0 is not told that it is over"
wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
ask a verify published >"$work/said" || die "verify: $(cat "$work/said")"
