#!/bin/bash
# Requeues the job when Slurm has taken the node of its script out of it: guard.sh NODE. job.sbatch starts it on another node.
set -u
while sleep 30; do
    nodes=$(squeue -h -j "$SLURM_JOB_ID" -o %N) || continue # slurmctld does not answer now
    scontrol show hostnames "$nodes" | grep -qx "$1" && continue
    echo "$(date +%T) node $1, where the script of the job ran, is lost"
    scontrol requeue "$SLURM_JOB_ID"
done
