#!/usr/bin/env bash
# A chain of Slurm jobs: the second begins when the first has ended, and continues its training.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
. "$ops_top/tests/ops/slurm.sh"
begin_cluster
make_kit '{}'
trainers_get --steps 6 --save-last --done --lockstep
(cd "$work/kit" && PATH=$work/stub:$PATH TRAIN_NODES=2 TIERCKPT_BIN_DIR=$bin ./chain.sh 2 --nodes=2 --output="$work/job.out.%j") >"$work/chain" ||
    die "the chain was not submitted: $(cat "$work/chain")"
mapfile -t jobs < <(sed -nE 's/^Submitted batch job ([0-9]+)$/\1/p' "$work/chain")
[ ${#jobs[@]} = 2 ] || die "not two jobs: $(cat "$work/chain")"
slurm_job=${jobs[1]}
[ "$(squeue -h -j "${jobs[1]}" -o %r)" = Dependency ] || die "the second job does not wait for the first one"
wait_for 60 job_is COMPLETED || die "the second job is $(job_state)"
printed 0 0 '^RESTORED .* step=6 .* storage=[1-9]' || die "the second job does not continue: $(outputs 0 0)"
slurm_job=${jobs[0]}
printed 0 0 '^FRESH' || die "the first job did not begin afresh"
rm -rf "/tmp/tierckpt-${jobs[1]}"
