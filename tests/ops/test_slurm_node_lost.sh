#!/usr/bin/env bash
# A node of a Slurm job is lost: the job goes on with the spare, from the agents' memory, and the other node's agent stays.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
begin_cluster --option SlurmdTimeout=300 # Slurm itself notices nothing during this test
make_kit '{"on_node_loss": "end_trainers", "heartbeat_ms": 200, "peer_timeout_ms": 1500}'
trainers_get --steps 100000 --step-ms 20 --wait-commit --lockstep
submit 3
wait_for 60 printed 0 0 '^COMMITTED' || die "no commit"
log=/tmp/tierckpt-$slurm_job/$job/n1/agent.log
trainers_get --steps 1 --done
kill_slurm_node n2
wait_for 60 printed 0 0 '^RESTORED' || die "the training does not go on"
committed=$(newest_committed_of 0 0)
restored=$(outputs 0 0 | sed -nE 's/^RESTORED .*step=([0-9]+) .*/\1/p')
[ "$restored" -ge "$committed" ] || die "restored $restored, and step $committed was committed"
printed 0 0 '^RESTORED .* local=[1-9]' || die "rank 0 had nothing from its node's memory: $(outputs 0 0 | grep RESTORED)"
printed 0 1 '^RESTORED .* peer=[1-9]' || die "rank 1 had nothing from a peer: $(outputs 0 1 | grep RESTORED)"
! printed 0 0 WRONG && ! printed 0 1 WRONG || die "wrong bytes were restored"
job_said 'node n2 does not answer; in its place: n3' || die "the spare has not taken the place of n2"
[ "$(grep -c 'agent started' "$work/job.out")" = 3 ] || die "other agents were started than one on n1, n2 and n3"
[ -e "$log" ] || die "n1 has no agent of its own"
# It stays in this state until Slurm, too, has noticed the loss.
wait_for 60 job_is COMPLETING || die "the job is $(job_state)"
scontrol show job "$slurm_job" | grep -q ExitCode=0:0 || die "the job has failed"
