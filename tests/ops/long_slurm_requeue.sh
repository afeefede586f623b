#!/usr/bin/env bash
# Slurm requeues a job that loses the node of its script: it starts again on other nodes and continues from storage.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
begin_cluster
make_kit '{"save_storage_interval": 4}'
trainers_get --steps 100000 --step-ms 50 --wait-commit --lockstep
submit 2
published() { find "$work/save/$job" -maxdepth 1 -name 'v0*' 2>/dev/null | grep -q .; }
wait_for 90 published || die "nothing is published"
trainers_get --steps 1 --done
kill_slurm_node n1
wait_for 240 job_said 'restart 1, nodes n[2-4] n[2-4]$' || die "the job does not start again without n1"
wait_for 60 printed 1 0 '^RESTORED .* storage=[1-9]' || die "nothing is restored from storage"
! printed 1 0 WRONG || die "wrong bytes were restored"
wait_for 60 job_is COMPLETED || die "the job is $(job_state)"
