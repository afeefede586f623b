#!/bin/bash
# Submits job.sbatch several times: chain.sh COUNT [OPTION OF SBATCH]... Each job begins when the one before has ended, however
# it ended, since no two jobs of one user and name run at the same time. It continues the training. For clusters that do
# not requeue jobs.
set -eu
count=${1:?how many jobs}
shift
for ((i = 0; i < count; i++)); do
    sbatch --dependency=singleton --no-requeue "$@" job.sbatch
done
