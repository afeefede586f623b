#!/usr/bin/env bash
# An agent that dies while storage is read-only starts again with its memory, although it cannot open its audit file.
# The trainers and the commits to memory continue, and versions are published once storage can be written again. There
# is one warning.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount --bind "$work/save" "$work/save" 2>/dev/null || skip "nothing can be mounted here"
at_end() { umount -l "$work/save"; }
remount() { mount -o "remount,bind,$1" "$work/save" 2>/dev/null; }
remount ro || skip "nothing can be mounted read-only here"
remount rw
storage_interval=4
settings=',"slots":2'
begin 1
run_on a 0 --steps 100000 --step-ms 20
log_must_say a 60 'is published'
fault "the agent dies, and storage is read-only"
moment
supervisor=$(supervisor_pid a)
builtin kill -STOP "$supervisor" # until storage is read-only: the agent has its audit file open
kill -9 "$(agent_pid a)"
wait_for 60 no_agent a
wait_for 60 remount ro || die "it cannot be made read-only"
builtin kill -CONT "$supervisor"
log_must_say a 60 'audit file .*Read-only file system: nothing is saved to storage until it can be opened'
more_commits a 20 60 || die "no commits to memory while storage is read-only: $(tail -5 "$(agent_log a)")"
[ "$(grep -c 'until it can be opened' "$(agent_log a)")" = 1 ] || die "more than one warning"
! said 0 '^ERROR' || die "the trainer has an error: $(out 0 | grep ERROR)"
published() { grep -c 'is published' "$(agent_log a)"; }
before=$(published)
remount rw
publishes() { [ "$(published)" -gt "$before" ]; }
wait_for 120 publishes || die "nothing is published though storage can be written: $(tail -5 "$(agent_log a)")"
grep -q '"op":"publish","phase":"result".*success' "$work"/save/test/audit.a.jsonl || die "no audit line tells of it"
wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
