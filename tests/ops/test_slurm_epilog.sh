#!/usr/bin/env bash
# The epilog ends the agent that a job has left on a node and deletes its directory, and touches no other job's; the prolog
# makes the directory of the next one.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
mkdir "$work/admin"
cp "$ops_top/deploy/slurm/prolog.sh" "$ops_top/deploy/slurm/epilog.sh" "$work/admin"
begin_cluster --nodes 1 --option "Epilog=$work/admin/epilog.sh" --option "Prolog=$work/admin/prolog.sh"
make_kit '{"linger_s": 600}'
# Another agent of this user, and a process of the job's user in the job's directory that does not belong to the job.
begin 1
run_on other 0 --steps 2
all_end
other=$(agent_pid other)

# The trainer starts an agent by itself, which outlives the step and the job.
cat >"$work/kit/job.sh" <<JOB
#!/bin/bash
export TIERCKPT_RUNTIME_DIR=/tmp/tierckpt-\$SLURM_JOB_ID TIERCKPT_NODE=\$SLURMD_NODENAME TIERCKPT_BIN_DIR=$bin
stat -c %U "\$TIERCKPT_RUNTIME_DIR"
mkdir "$work/oob.job"
"$trainer" --config config.json --oob "$work/oob.job" --steps 4
cp "\$TIERCKPT_RUNTIME_DIR/$job/n1/agent.log" "$work/left.log"
until [ -e "$work/go" ]; do sleep 0.1; done
JOB
slurm_job=$(cd "$work/kit" && sbatch --parsable --output="$work/job.out" job.sh) || die "sbatch failed"
root=/tmp/tierckpt-$slurm_job
wait_for 60 test -s "$work/left.log" || die "the job has no agent"
job_said "^$(id -un)\$" || die "the prolog has not made $root"
left=$(pids_of "$root/" | xargs) # supervisor and agent
[ "$(echo "$left" | wc -w)" = 2 ] || die "not supervisor and agent, but: $left"
(cd "$root/$job/n1" && exec env -u SLURM_JOB_ID sleep 300) &
visitor=$!
touch "$work/go"
wait_for 60 job_is COMPLETED || die "the job is $(job_state)"
gone() { ! pids_of "$root/" >/dev/null && [ ! -e "$root" ]; }
wait_for 30 gone || die "left after the epilog: $(pids_of "$root/" | xargs) $(ls -d "$root")"
[ "$(agent_pid other)" = "$other" ] || die "the epilog has ended the agent of another job"
builtin kill -0 $visitor || die "the epilog has ended a process that is not the job's"
builtin kill $visitor

# Run by root, it does everything as the job's user: a process of another user stays, whatever it looks like.
[ "$(id -u)" = 0 ] || exit 0
number=$((slurm_job + 1)) user=65534
directory=/tmp/tierckpt-$number/$job/n1
mkdir -p "$directory" && chown -R $user "/tmp/tierckpt-$number"
(cd "$directory" && SLURM_JOB_ID=$number exec setpriv --reuid=$user --regid=$user --clear-groups sleep 30) &
users=$!
(cd "$directory" && SLURM_JOB_ID=$number exec sleep 300) &
roots=$!
wait_for 60 test "$(readlink /proc/$users/cwd)" = "$directory" || die "no process in $directory"
SLURM_JOB_ID=$number SLURMD_NODENAME=n1 SLURM_JOB_UID=$user "$work/admin/epilog.sh" || die "the epilog failed"
wait $users && die "the epilog has left a process of the job"
builtin kill -0 $roots || die "the epilog has ended a process of another user"
builtin kill $roots
[ ! -e "/tmp/tierckpt-$number" ] || die "the epilog has left the job's directory"
