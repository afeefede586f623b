#!/bin/bash
# For Prolog= in slurm.conf, beside epilog.sh: removes what an earlier start of a requeued job has left on this node, if no
# epilog could run there, and makes the job's runtime directory, so that no other user can make it first.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
"$(dirname "$0")/epilog.sh"
root=/tmp/tierckpt-${SLURM_JOB_ID:?}
mkdir -m 700 "$root" 2>/dev/null && chown "${SLURM_JOB_UID:?}" "$root"
exit 0 # another status would drain the node; agents check the directory's owner themselves
