#!/usr/bin/env bash
# The wheel installs in a bare Debian, README's quick start works there as it stands, and trainings survive kill -9
set -u
. "$(dirname "$0")/lib.sh" "${1:-}"

# All that pip will find there: the wheel and what it depends on.
wheel=$(compgen -G "$top/build/wheel/tierckpt-*.whl") || skip "deploy/wheel has built no wheel"
rm -f "$packages"/wheels/tierckpt-*
quietly "$top/build/wheel/tools/bin/pip" download --disable-pip-version-check --only-binary=:all: --python-version 3.11 \
    -d "$packages/wheels" "$wheel" torch==2.13.0
# No compiler is in it, and none of the libraries that Tierckpt needs.
make_root python python3 python3-venv
for name in libucp librocksdb libcjson libisal libmicrohttpd liburing; do
    [ -z "$(find "$root" -name "$name*")" ] || die "the bare Debian has $name"
done
cp "$top/tests/packages/training.py" "$root/user/"
python3 "$top/tests/packages/quick_start.py" "$top/README.md" "$root/user" || exit 1
inside user <"$top/tests/packages/inside_wheel.sh"
