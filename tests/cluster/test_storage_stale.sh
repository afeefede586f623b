#!/usr/bin/env bash
# Storage becomes stale below a running job, once for a while and once permanently, so that what the agents have open
# there never works again, while the path does. Commits to memory continue, the ranks and status report it, and
# versions are published once storage is back. Restarts meanwhile restore from memory, and so does a later one.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
. "$(dirname "$0")/storage_away.sh"
away='Stale file handle'
storage_goes() { fault "all of storage is stale"; lie 1000 ESTALE; }
storage_returns() { lie 0; }
start
log_must_say a 60 'is published'
train_through
restart_meanwhile

away='(Transport endpoint is not connected|Software caused connection abort)' # the latter for calls under way
storage_goes() {
    fault "the file system below save_dir has died"
    builtin kill -9 "$server"
}
storage_returns() { # for a moment the path is an empty directory
    umount -l "$work/save"
    moment
    serve || die "it cannot be mounted again"
}
train_through
restart_meanwhile
