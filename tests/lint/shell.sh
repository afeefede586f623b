#!/usr/bin/env bash
# ShellCheck finds nothing in the scripts that users copy: shell.sh [TOP]
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
PATH=$PATH:$PWD/build/ops/usr/bin
command -v shellcheck >/dev/null || { echo "shellcheck is not installed"; exit 77; }
shellcheck -x -P deploy/slurm deploy/slurm/*.sh deploy/slurm/job.sbatch
