#!/usr/bin/env bash
# A node of a Slurm job is lost and there is no spare: the training is started again without it, if TRAIN_NODES_MIN allows it;
# otherwise the job is requeued.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
begin_cluster
make_kit '{"on_node_loss": "end_trainers", "heartbeat_ms": 200, "peer_timeout_ms": 1500}'
trainers_get --steps 100000 --step-ms 20 --lockstep --no-restore
export TRAIN_NODES_MIN=1
submit 2
wait_for 60 printed 0 0 '^STEP 4' || die "no steps"
kill_slurm_node n2
wait_for 60 job_said 'training on n1$' || die "the training is not started without n2"
job_said 'node n2 does not answer; in its place: none' || die "the log does not name the node"
wait_for 30 job_is RUNNING || die "the job is $(job_state)"
slurm_first=$slurm_job
scancel "$slurm_job"

export TRAIN_NODES_MIN=2
mv "$work/job.out" "$work/job.out.1"
submit 2 --nodelist=n3,n4
wait_for 60 job_said 'training on n3,n4' || die "the training does not start"
wait_for 60 printed 0 0 "^STEP 4" || die "no steps"
kill_slurm_node n4
wait_for 90 job_is PENDING || die "the job was not requeued: it is $(job_state)"
job_said 'too few nodes are left: n3' || die "the log does not say why"
rm -rf "/tmp/tierckpt-$slurm_first"
