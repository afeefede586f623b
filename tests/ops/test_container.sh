#!/usr/bin/env bash
# An agent in a container of its own, without privileges, serves the trainers of other containers: it keeps their memory
# when they or the agent are killed, and drains it when the container gets SIGTERM.
. "$(dirname "$0")/lib.sh"
. "$ops_top/tests/cluster/lib.sh" "$1"
needs_root
needs unshare setpriv python3

user=10001
# Directories as Kubernetes makes them: a volume in memory for each pod, and one that all pods see.
chmod 755 "$work" "$bin" && chown $user "$work/save" && mount -t tmpfs -o mode=1777,size=64m tmpfs "$work/run" 2>/dev/null ||
    skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/run"; }
unprivileged() { setpriv --reuid=$user --regid=$user --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "$@"; }
unprivileged test -x "$trainer" || skip "user $user cannot reach $build"
unshare --mount --pid --fork --mount-proc true 2>/dev/null || skip "no PID namespace can be had here"
# container COMMAND...: another user, no capabilities, own PID and mount namespaces. In a subshell, which it takes the place of.
container() {
    exec unshare --mount --pid --fork --kill-child --mount-proc sh -c "$root"'exec setpriv --reuid='$user' --regid='$user' \
        --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs --pdeathsig=KILL "$@"' container "$@"
}
in_pod() { shift; root="" container "$@"; }
in_node=in_pod

# Its root file system cannot be written to.
read_only="mount --bind '$work/save' '$work/save' && mount --bind '$work/bin' '$work/bin' && mount -o remount,bind,ro / && "
start_agents() {
    local node
    for node in a b; do
        node_json "$node" >"$work/config.$node.json"
        TIERCKPT_CONFIG=$work/config.$node.json TIERCKPT_JOB=$job TIERCKPT_NODE=$node TIERCKPT_RUNTIME_DIR=$work/run \
            TIERCKPT_DOMAIN=rack-$node TIERCKPT_MEMORY_PERCENT=50 TIERCKPT_MEMORY_LIMIT=2147483648 \
            root=$read_only container "$ops_top/deploy/kubernetes/tierckpt-agent" >"$work/container.$node" 2>&1 &
        containers[$node]=$!
    done
    for node in a b; do
        wait_for 30 answers "$node" && wait_for 30 is_ready "$node" || die "the agent of $node is not ready: $(tail -5 "$work/container.$node" "$work/run/$job/$node/"*.log)"
    done
}
# What the trainers of the examples wait for, and what the kubelet asks.
answers() { unprivileged "$bin/tierckpt" --config "$work/config.$1.json" --node "$1" status 2>/dev/null | grep -q '^job '; }
is_ready() { unprivileged "$bin/tierckpt" --config "$work/config.$1.json" --node "$1" status >/dev/null 2>&1; }
member() { unprivileged "$bin/tierckpt" --config "$work/config.$1.json" --node "$1" --json status | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }
train() {
    begin 2
    chown $user "$work/oob.$launch"
    run_on a 0 --steps 100000 --step-ms 20 --wait-commit
    run_on b 1 --steps 100000 --step-ms 20 --wait-commit
    wait_for 60 said 0 '^COMMITTED' && wait_for 60 said 1 '^COMMITTED' || die "no commit: $(out 0 | tail -3)"
}
must_restore() { # FROM STEP
    [ "$(restored_step 0)" -ge "$2" ] || die "restored '$(restored_step 0)', but $2 was committed"
    [ "$(restored_from 0 "$1")" -gt 0 ] || die "not from $1: $(grep -h '^RESTORED' "$work/out.$launch.0")"
}

declare -A containers
node_json a >"$work/config.a.json"
! answers a || die "an agent answers before there is one"
settings=',"grace_s":60'
start_agents
[ "$(member a '["memory"]["cap_bytes"]')" = 1073741824 ] || die "half of 2 GiB is not $(member a '["memory"]')"
train
known=$(newest_commit)
# The trainers' container ends.
kill_trainers
train
must_restore local "$known"
# The agent dies, and the container goes on.
known=$(newest_commit)
kill -9 "$(agent_pid a)"
more_commits a 3 60 || die "no commits after the agent's death: $(tail -3 "$(agent_log a)")"
wait_for 60 grep -q 'is committed' "$work/container.a" || die "the container's output has no line of the agent's log"
kill_trainers
train
must_restore local "$known"
kill_trainers
sleep 0.5
known=$(newest_committed a)
# The first process of each container gets SIGTERM.
for node in a b; do kill -TERM "$(supervisor_pid "$node")"; done
for node in a b; do
    wait "${containers[$node]}" || die "the container of $node ended with status $?: $(tail -3 "$work/container.$node")"
    rm -r "${work:?}/run/$job/$node"
done
start_agents
train
must_restore storage "$known"
kill_trainers
