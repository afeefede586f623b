# Shared by the tests with Slurm: a cluster of four nodes on this machine, and jobs of deploy/slurm, unchanged, on it; what
# these run as `python` is the trainer of the cluster tests. Sourced after lib.sh and tests/cluster/lib.sh.
# shellcheck shell=bash
cluster_program=$ops_top/deploy/demo/slurm_cluster.py
missing=$(python3 "$cluster_program" --missing)
[ -z "$missing" ] || skip "not installed: $missing"
slurm_job="" slurm_pid=""

# begin_cluster [OPTION...]: of slurm_cluster.py, which reads descriptor 8.
begin_cluster() {
    mkfifo "$work/orders"
    python3 "$cluster_program" "$work/slurm" "$@" <"$work/orders" >"$work/slurm.out" 2>&1 &
    slurm_pid=$!
    exec 8>"$work/orders"
    wait_for 60 grep -q '^ready' "$work/slurm.out" || die "no Slurm: $(cat "$work/slurm.out")"
    . "$work/slurm/env"
}
end_cluster() {
    [ -n "$slurm_pid" ] || return
    (echo end >&8) 2>/dev/null # processes of the test may have the descriptor, too
    exec 8>&-
    wait "$slurm_pid"
}
# Before finish, which kills whatever has the work directory in its command line: the cluster ends its daemons itself.
slurm_finish() {
    local status=$?
    if [ $status -ne 0 ]; then
        tail -n 40 "$work/job.out" "$work/slurm/slurmctld.log" 2>/dev/null
        [ -z "$slurm_job" ] || tail -n 30 "/tmp/tierckpt-$slurm_job"/*/*/agent.log
    fi
    end_cluster
    [ -z "$slurm_job" ] || rm -rf "/tmp/tierckpt-$slurm_job"
    (exit $status)
    finish
}
trap slurm_finish EXIT

order() {
    echo "$*" >&8
    wait_for 30 grep -qx "$*" "$work/slurm.out" || die "the cluster does not obey '$*': $(cat "$work/slurm.out")"
}
# kill_slurm_node NODE: SIGKILL for its slurmd and all below it.
kill_slurm_node() {
    fault "node lost"
    order kill "$1"
}

# make_kit SETTINGS: deploy/slurm as users copy it, with a configuration of this test; SETTINGS is a JSON object.
make_kit() {
    local settings=""
    cp -r "$ops_top/deploy/slurm" "$work/kit"
    node_json "" | python3 -c 'import json, sys
config = json.load(sys.stdin)
for key in ("node", "runtime_dir", "run_id"): del config[key]
json.dump({**config, "net_device": "lo", **json.loads(sys.argv[1])}, sys.stdout)' "$1" >"$work/kit/config.json"
    mkdir "$work/stub"
    cat >"$work/stub/python" <<STUB
#!/usr/bin/env bash
for argument; do
    case \$argument in
    --nnodes=*) world=\${argument#*=} ;;
    --node-rank=*) rank=\${argument#*=} ;;
    esac
done
start=\$SLURM_JOB_ID.\${SLURM_RESTART_COUNT:-0}.\$SLURM_STEP_ID
mkdir -p "$work/oob.\$start"
exec "$trainer" --config "\$TIERCKPT_CONFIG" --oob "$work/oob.\$start" --rank "\$rank" --world "\$world" \\
    \$(cat "$work/options") >"$work/out.\$start.\$rank" 2>&1
STUB
    chmod +x "$work/stub/python"
}
# trainers_get OPTIONS: of the trainers that are started from now on.
trainers_get() { echo "$*" >"$work/options"; }
# submit NODES OPTION...: two nodes train, the others are spares.
submit() {
    local nodes=$1
    shift
    slurm_job=$(cd "$work/kit" && PATH=$work/stub:$PATH TRAIN_NODES=2 TIERCKPT_BIN_DIR=$bin sbatch --parsable \
        --nodes="$nodes" --output="$work/job.out" "$@" job.sbatch) || die "sbatch failed"
}
job_state() { squeue -h -t all -j "$slurm_job" -o %T; }
job_is() { [ "$(job_state)" = "$1" ]; }
job_said() { grep -qE -- "$1" "$work/job.out"; }
# outputs RESTART RANK: what this rank of the job has printed in the starts of the training, in order.
outputs() { find "$work" -maxdepth 1 -name "out.$slurm_job.$1.*.$2" -printf '%T@ %p\n' | sort -n | cut -d' ' -f2 | xargs -r cat; }
printed() { outputs "$1" "$2" | grep -qE -- "$3"; }
newest_committed_of() { outputs "$1" "$2" | sed -nE 's/^COMMITTED ([0-9]+)$/\1/p' | sort -n | tail -1; }
