#!/bin/bash
# Submits job.sbatch several times under one name: chain.sh COUNT. Each job begins when the one before has ended, however it
# ended, and continues its training. For clusters that do not requeue jobs, or where a job is lost with its first node.
set -eu
for ((i = 0; i < ${1:?how many jobs}; i++)); do
    sbatch --dependency=singleton --no-requeue job.sbatch
done
