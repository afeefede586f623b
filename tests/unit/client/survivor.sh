#!/usr/bin/env bash
# The example is killed and restored by the agents of this build: survivor.sh <survivor> <directory of the programs>
# If the directory is empty, the library finds the programs.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TIERCKPT_RUNTIME_DIR=$dir/run TIERCKPT_BIN_DIR=$2
first=$("$1" "$dir" 2>&1) && { echo "the first run did not die: $first"; exit 1; }
second=$("$1" "$dir" 2>&1) || { echo "the second run failed: $second"; exit 1; }
[[ $second == *"goes on at step 20, weights are 20"* ]] && exit 0
echo "first: $first"
echo "second: $second"
exit 1
