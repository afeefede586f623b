# Shared by the tests of packages: a bare Debian below $work/root, made once and kept as
# build/packages/NAME.tar. Sourced with the top directory as $1.
# shellcheck shell=bash

top=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd) || exit 1
packages=$top/build/packages
suite=bookworm

die() { printf '%s\n' "$*"; exit 1; }
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
# quietly COMMAND...: its output is shown only if it fails.
quietly() { "$@" >"$work/log" 2>&1 </dev/null || { tail -60 "$work/log"; die "failed: $*"; }; }

[ "$(id -u)" -eq 0 ] || skip "only root can change its root directory"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces can be made here"
mkdir -p "$packages"
work=$(mktemp -d "$packages/test.XXXXXX") || exit 1
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT

# make_root NAME PACKAGE...: the smallest Debian that apt makes, with these packages; a user named user.
make_root() {
    local bare=$packages/$1.tar included=$packages/$1.included
    shift
    if [ ! -e "$bare" ] || [ "$(cat "$included")" != "$*" ]; then
        quietly mmdebstrap --variant=minbase "--include=$(IFS=,; echo "$*")" $suite "$work/root.tar"
        mv "$work/root.tar" "$bare" && echo "$*" >"$included"
    fi
    mkdir "$root" && tar -xf "$bare" -C "$root" --exclude='./dev/*' || exit 1
    echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
    chroot "$root" useradd --create-home --home-dir /user user
    mkdir -p "$root/wheels" "$root/user/run" "$packages/wheels"
    chroot "$root" chown -R user /user
}

# inside USER SCRIPT ARGUMENTS...: runs the script from standard input there, with processes and mounts of its own, all of
# which end with it. Only what is in that Debian and in build/packages/wheels can be found.
inside() {
    local user=$1
    shift
    cat >"$root/script"
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount --pid --fork bash -c '
        root=$1 wheels=$2 user=$3
        shift 3
        mount --bind "$wheels" "$root/wheels" && mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/tmp" && mount --rbind /sys "$root/sys" &&
            chmod 1777 "$root/tmp" && mount --rbind /dev "$root/dev" || exit 1
        exec chroot "$root" setpriv --reuid="$user" --regid="$user" --init-groups env -i HOME=/user LANG=C.UTF-8 \
            PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 \
            TIERCKPT_RUNTIME_DIR=/user/run bash -eu /script "$@"
    ' inside "$root" "$packages/wheels" "$user" "$@" </dev/null
}
