#!/usr/bin/env bash
# The Python package passes ruff and mypy, its tests ruff.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
top=$PWD

# The environment that deploy/check makes, or the one that is active.
python=$top/build/venv/bin/python
"$python" -c 'import mypy, ruff, torch' 2>/dev/null || python=python3
"$python" -c 'import mypy, ruff, torch' 2>/dev/null || { echo "$python has no mypy, ruff or torch"; exit 77; }

bad=0
"$python" -m ruff check --quiet python deploy/kubernetes tests/frameworks tests/model_changes tests/ops tests/programs/*.py tests/python tests/s3 tests/seeds || bad=1
"$python" -m mypy --no-error-summary || bad=1
exit $bad
