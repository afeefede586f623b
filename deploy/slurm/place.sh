# The directory of this node's agent, for agent.sh and train.sh. Several slurmd of one machine share its host name, so a
# node has the name that Slurm gives it. Sourced.
# shellcheck shell=bash
export TIERCKPT_NODE=$SLURMD_NODENAME
job=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["job"])' "$TIERCKPT_CONFIG")
export place=$TIERCKPT_RUNTIME_DIR/$job/$TIERCKPT_NODE
