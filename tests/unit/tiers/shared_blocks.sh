#!/usr/bin/env bash
# Runs a program in a directory of a file system whose files can share blocks: shared_blocks.sh xfs|btrfs PROGRAM.
# Exit status 77: there is none here.
set -eu
kind=$1 program=$2
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root to mount a file system"
command -v "mkfs.$kind" >/dev/null || skip "needs mkfs.$kind (Debian: $([ "$kind" = xfs ] && echo xfsprogs || echo btrfs-progs))"
work=$(mktemp -d)
finish() {
    ! mountpoint -q "$work/fs" || umount "$work/fs"
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/fs"
truncate -s 1G "$work/disk"
case $kind in
xfs) mkfs.xfs -q -m reflink=1 "$work/disk" ;;
btrfs) mkfs.btrfs -q "$work/disk" >/dev/null ;;
esac
mount -o loop "$work/disk" "$work/fs" 2>"$work/why" || skip "$kind cannot be mounted: $(cat "$work/why")"
(cd "$work/fs" && "$program" -j1) # one after the other, because a test measures the room that is left
