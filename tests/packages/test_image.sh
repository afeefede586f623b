#!/usr/bin/env bash
# The image of the agents is built without a daemon, on a bare Debian, and its agents keep the memory of a training that is killed
set -u
. "$(dirname "$0")/lib.sh" "${1:-}"
. "$top/tests/lib/find_build.sh"

command -v buildah >/dev/null || skip "buildah is not installed"
trainer=$(find_build tests/cluster/cluster_trainer "")/tests/cluster/cluster_trainer || skip "no build has the tests' trainer"
images() { buildah --root "$work/images" --runroot "$work/images.run" --storage-driver vfs "$@"; }
make_root image ca-certificates
mkdir "$work/context"
(cd "$top" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$work/context" || die "the tree cannot be copied"

# The base comes from Debian's archive, and not from a registry of images.
bare=$(images from scratch) && mounted=$(images mount "$bare") || die "no container can be made here"
tar -xf "$packages/image.tar" -C "$mounted" --exclude='./dev/*' || die "the base cannot be unpacked"
images umount "$bare" >/dev/null && quietly images commit --rm "$bare" localhost/bare
quietly images bud --isolation chroot --network host --format docker --pull-never --build-arg BASE=localhost/bare \
    -f "$top/deploy/kubernetes/Dockerfile" -t localhost/tierckpt "$work/context"
agent=$(images from --pull-never localhost/tierckpt) || die "the image cannot be used"
user=$(images inspect --format '{{.OCIv1.Config.User}}' "$agent")
[ "$user" = 10001:10001 ] || die "the image's user is $user"
root=$(images mount "$agent")
install -m 755 "$trainer" "$root/usr/local/bin/"
mkdir -p "$root/user" "$root/wheels"
chroot "$root" chown 10001:10001 /user
inside tierckpt <"$top/tests/packages/inside_image.sh" || exit 1
