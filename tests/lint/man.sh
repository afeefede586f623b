#!/usr/bin/env bash
# The manual pages name every option that the programs have: man.sh [TOP [BUILD]]
set -u
top=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 1
. "$top/tests/lib/find_build.sh"
build=$(find_build runtime/agent/tierckptd "${2:-}") || exit 1
[ -d "$build/man" ] || { echo "no manual pages are built: help2man is not installed, or the build has sanitizers"; exit 77; }
bad=0
for program in cli/tierckpt agent/tierckptd agent/tierckpt-supervisor; do
    name=${program#*/}
    page=$(compgen -G "$build/man/$name.[18]") || { echo "there is no page of $name"; bad=1; continue; }
    help=$("$build/runtime/$program" --help) || { echo "$program --help fails"; bad=1; continue; }
    while read -r option; do
        tr -d '\\' <"$page" | grep -qF -- "$option" || { echo "$page lacks $option"; bad=1; }
    done < <(grep -oE -- '--[a-z]+[a-z-]*' <<<"$help" | sort -u)
done
exit $bad
