#!/bin/bash
# The agent of one node, under its supervisor, which restarts it and keeps the memory meanwhile. job.sbatch starts it.
set -eu
. ./place.sh
umask 077
mkdir -p "$place"
rm -f "$place/agent.sock" # of an agent that was killed; train.sh waits for a new one
cd "$place"
exec "$TIERCKPT_BIN_DIR/tierckpt-supervisor" --foreground --runtime-dir "$place" -- \
    "$TIERCKPT_BIN_DIR/tierckptd" --config "$TIERCKPT_CONFIG"
