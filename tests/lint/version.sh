#!/usr/bin/env bash
# The version is said in CMakeLists.txt alone and, since Helm wants it there, in the chart; the changelog has a section for
# it: version.sh [TOP]
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
version=$(sed -nE 's/^project\(tierckpt VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || { echo "CMakeLists.txt has no project(tierckpt VERSION ...)"; exit 1; }
git ls-files >/dev/null || exit 1
bad=0
chart=deploy/kubernetes/tierckpt/Chart.yaml
for key in version appVersion; do
    grep -qx "$key: $version" "$chart" || { echo "$chart has another $key than $version"; bad=1; }
done
# Those of other programs, in lists of what is installed, are no business of ours.
others=$(git ls-files -z -- . ':!CMakeLists.txt' ':!CHANGELOG.md' ":!$chart" ':!tests/fuzz/corpus' ':!*requirements*.txt' |
    xargs -0 grep -nIE "(version|VERSION|tierckpt)[^0-9]{0,12}\b${version//./\\.}\b" /dev/null)
[ -z "$others" ] || { echo "the version stands outside CMakeLists.txt, too:"; echo "$others"; bad=1; }
grep -qF "## [$version]" CHANGELOG.md || { echo "CHANGELOG.md has no section [$version]"; bad=1; }
exit $bad
