#!/bin/bash
# For Epilog= in slurm.conf: ends the supervisors and agents that a job which is over has left on this node, and deletes its
# runtime directory. Their shared memory has no name and is freed with them. All of this is done as the job's user.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
job=${SLURM_JOB_ID:?} node=${SLURMD_NODENAME:?} user=${SLURM_JOB_UID:?}
root=/tmp/tierckpt-$job
if [ "$(id -u)" -ne "$user" ]; then
    setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups bash -s <"$0" # which the user need not be able to read
    exit 0 # another status would drain the node
fi

# Another user's directory of this name, or a link, is none of the job's.
[ -d "$root" ] && [ ! -L "$root" ] && [ -O "$root" ] || exit 0

# Processes of this job that work in its runtime directory. Nodes of one machine (several slurmd) share that of the job.
left() {
    local process directory
    for process in /proc/[0-9]*; do
        directory=$(readlink "$process/cwd" 2>/dev/null) || continue
        [[ $directory/ == "$root"/*/"$node"/* ]] || continue
        ! grep -qzx "SLURM_JOB_ID=$job" "$process/environ" 2>/dev/null || echo "${process#/proc/}"
    done
}

# end SIGNAL TENTHS: sends the signal, and waits up to TENTHS tenths of a second for the processes to end.
end() {
    local pids
    for ((i = 0; i < $2; i++)); do
        mapfile -t pids < <(left)
        [ ${#pids[@]} -gt 0 ] || return
        [ $i -gt 0 ] || kill -s "$1" "${pids[@]}" 2>/dev/null
        sleep 0.1
    done
}
end TERM 100 # agents may be writing to storage
end KILL 20
rm -rf -- "${root:?}"/*/"$node"
rmdir -- "$root"/* "$root" 2>/dev/null # unless other nodes of this machine still use them
exit 0
