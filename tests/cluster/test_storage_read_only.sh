#!/usr/bin/env bash
# Storage becomes read-only below a running job: commits to memory continue, the ranks and status report it, and
# versions are published once it can be written again. Restarts meanwhile restore from memory, and so does a later one.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount --bind "$work/save" "$work/save" 2>/dev/null || skip "nothing can be mounted here"
at_end() { umount -l "$work/save"; }
. "$(dirname "$0")/storage_away.sh"
away='Read-only file system'
remount() { mount -o "remount,bind,$1" "$work/save" 2>/dev/null; }
remount ro || skip "nothing can be mounted read-only here"
remount rw
storage_goes() { # not while a file is open for writing
    fault "storage is read-only"
    wait_for 60 remount ro || die "it cannot be made read-only"
}
storage_returns() { remount rw; }
start
log_must_say a 60 'is published'
train_through
restart_meanwhile
