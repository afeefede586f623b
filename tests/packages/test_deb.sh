#!/usr/bin/env bash
# The Debian packages install in a bare Debian, a C program builds against them by pkg-config and survives, and a purge leaves nothing
set -u
. "$(dirname "$0")/lib.sh" "${1:-}"

compgen -G "$top/build/deb/*.deb" >/dev/null || skip "deploy/deb has built no packages"
debs=("$top"/build/deb/*.deb)
# field NAME: of each package.
field() { local deb; for deb in "${debs[@]}"; do dpkg-deb -f "$deb" "$1"; done; }
# All that they depend on but each other; dpkg refuses to install them if something is missing.
mapfile -t needed < <(field Depends | sed 's/([^)]*)//g' | tr -s ', ' '\n' | grep -v tierckpt | sort -u)
make_root deb gcc libc6-dev pkg-config "${needed[@]}"
mkdir "$root/debs"
cp "${debs[@]}" "$root/debs/"
cp "$top/tests/unit/client/survivor.sh" "$root/user/"
quietly chroot "$root" sh -c 'dpkg --install /debs/*.deb'

inside user <<'END' || exit 1
cd
# The command of docs/c.md, for the example that is installed.
cc -o survivor /usr/share/doc/libtierckpt-dev/examples/survivor.c $(pkg-config --cflags --libs tierckpt)
bash survivor.sh ./survivor ""
for program in tierckpt /usr/libexec/tierckpt/tierckptd /usr/libexec/tierckpt/tierckpt-supervisor; do
    $program --help >/dev/null || { echo "$program does not start"; exit 1; }
done
grep -q '^ExecStart=/usr/libexec/tierckpt/tierckptd ' /lib/systemd/system/tierckptd@.service ||
    { echo "the unit starts another program"; exit 1; }
END
mapfile -t names < <(field Package)
quietly chroot "$root" dpkg --purge "${names[@]}"
left=$(cd "$root" && find etc lib/ usr var/lib/systemd -name '*tierckpt*' 2>/dev/null)
[ -z "$left" ] || die "purged, and still there: $left"
