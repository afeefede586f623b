#!/usr/bin/env bash
# deploy/try --slurm: a training that loses a node under Slurm has the same bits as an undisturbed one.
. "$(dirname "$0")/lib.sh"
build=$1
python=$ops_top/build/venv/bin/python
"$python" -c 'import torch' 2>/dev/null || python=python3
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch"; exit 77; }
missing=$("$python" "$ops_top/deploy/demo/slurm_cluster.py" --missing)
[ -z "$missing" ] || { echo "skipped: not installed: $missing"; exit 77; }
export PYTHONPATH=$ops_top/python TIERCKPT_LIBRARY=$build/runtime/client/libtierckpt.so PYTHONDONTWRITEBYTECODE=1
export TIERCKPT_BIN_DIR=$build/runtime/agent PATH=$build/runtime/cli:$PATH
"$python" "$ops_top/deploy/demo" --slurm
