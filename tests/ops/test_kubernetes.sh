#!/usr/bin/env bash
# The Helm chart renders valid objects and refuses wrong values, and the examples and the image agree with it.
set -u
. "$(dirname "$0")/lib.sh"
python=$ops_top/build/kubernetes/bin/python
"$python" -c 'import helm_python, kubernetes_validate, pytest' 2>/dev/null || { echo "skipped: build/kubernetes, which deploy/check makes, has no Helm"; exit 77; }
PATH=$(dirname "$python"):$PATH TCK_BUILD=$(realpath "$1") exec "$python" -m pytest -q -rs -p no:cacheprovider "$ops_top/tests/ops/kubernetes"
