#!/usr/bin/env bash
# Before the time limit Slurm sends SIGTERM to the job's script: the agents write the newest version, which only memory has, to
# storage, and the job is requeued.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
begin_cluster
make_kit '{"save_storage_interval": 0, "grace_s": 20}'
trainers_get --steps 100000 --step-ms 20 --wait-commit --lockstep
submit 2 --time=1 --signal=B:TERM@50
wait_for 60 printed 0 0 '^COMMITTED' || die "no commit"
wait_for 70 job_said 'SIGTERM: the training ends' || die "the job got no SIGTERM"
wait_for 30 job_is PENDING || die "the job was not requeued: it is $(job_state)"
committed=$(newest_committed_of 0 0)
published=$(find "$work/save/$job" -maxdepth 1 -name 'v0*' | sed -nE 's/.*\/v0*([0-9]+)\.t1$/\1/p' | sort -n | tail -1)
[ "${published:-0}" -ge "$committed" ] || die "step $committed was committed, and on storage is step ${published:-none}"
[ "$(scontrol -o show job "$slurm_job" | sed -nE 's/.* Restarts=([0-9]+) .*/\1/p')" = 1 ] || die "not one restart"
# Somebody who cancels the job ends it.
scancel "$slurm_job"
wait_for 30 job_is CANCELLED || die "the job is $(job_state)"
