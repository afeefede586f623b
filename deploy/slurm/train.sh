#!/bin/bash
# The training on one node: train.sh LIST FAILED. LIST has the nodes in the order of their ranks. If the training fails here,
# the file FAILED is made, so that job.sbatch need not wait for the other nodes. Adapt the command at the end.
set -u
. ./place.sh
IFS=, read -ra nodes <<<"$1"
for rank in "${!nodes[@]}"; do [ "${nodes[rank]}" != "$SLURMD_NODENAME" ] || break; done
master=$(scontrol -o show node "${nodes[0]}" | sed -nE 's/.* NodeAddr=([^ ]+).*/\1/p')
port=$((20000 + (SLURM_JOB_ID * 100 + SLURM_STEP_ID) % 10000)) # another one for each start

# Without the agent of job.sbatch the first trainer would start one, which would end together with this step.
for ((waited = 0; waited < 60; waited++)); do
    [ ! -S "$place/agent.sock" ] || break
    sleep 1
done
[ -S "$place/agent.sock" ] || { echo "$SLURMD_NODENAME: no agent in $place"; touch "$2"; exit 1; }

export GLOO_SOCKET_IFNAME=${NET_DEVICE:-eth0} NCCL_SOCKET_IFNAME=${NET_DEVICE:-eth0} TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# shellcheck disable=SC2086 # TRAIN is a program and its arguments
python -m torch.distributed.run --nnodes=${#nodes[@]} --nproc-per-node="${RANKS_PER_NODE:-8}" --node-rank="$rank" \
    --master-addr="$master" --master-port="$port" --rdzv-id="$SLURM_JOB_ID" ${TRAIN:-train.py} || { touch "$2"; exit 1; }
