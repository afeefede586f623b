#!/usr/bin/env bash
# A commit that could not be noted because storage was full is noted as soon as there is room, so that it is never
# taken for one that was never made. So are the agents of a term, so that a second start knows which agents to ask.
# Failed attempts do not flood the log.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount -t tmpfs -o size=3m tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/save"; }
mem_interval=60
begin 1
run_on a 0 --steps 100000 --step-ms 20
log_must_say a 60 'joined term 1'
wait_for 60 test -e "$work/save/test/term.1" || die "term 1 was not claimed"
fault "disk full"
dd if=/dev/zero of="$work/save/other" bs=4k 2>/dev/null
log_must_say a 60 'is committed$'
log_must_say a 60 'note of the term: .*No space left'
noted() { grep -q '"committed": *true' "$work"/save/test/term.1*; }
! noted || die "noted on a full disk"
rm "$work/save/other"
wait_for 60 noted || die "there is room, and the commit is not noted: $(head "$work"/save/test/term.*)"
kill_trainers
fault "disk full again"
dd if=/dev/zero of="$work/save/other" bs=4k 2>/dev/null
begin 1
run_on a 0 --steps 100000 --step-ms 20
log_must_say a 60 'joined term ([2-9]|1[0-9])'
term=$(newest_term a)
joined() { grep -q '"joined": *true' "$work"/save/test/term.$term; }
! joined || die "noted on a full disk"
rm "$work/save/other"
wait_for 60 joined || die "there is room, and who has joined is not noted: $(head "$work"/save/test/term.$term)"
