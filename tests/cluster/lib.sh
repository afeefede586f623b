# Shared by the cluster tests: real trainers, agents and supervisors, several "nodes" on this machine. Sourced with the build
# directory as $1 (none: the newer one of build and build/release). Every process started has the work directory in its
# command line and is ended by pid at the exit.
# shellcheck shell=bash

suppressions=$(cd "$(dirname "${BASH_SOURCE[0]}")/../lib" && pwd)
. "$suppressions/find_build.sh"
build=$(find_build tests/cluster/cluster_trainer "${1:-}") || exit 1
work=$(mktemp -d "$build/cluster.XXXXXX")
bin=$work/bin
mkdir -p "$bin" "$work/save" "$work/run"
# Reports of a sanitized build, also those of agents and supervisors, whose output is not shown.
reports=$work/sanitizer
export ASAN_OPTIONS="log_path='$reports'" UBSAN_OPTIONS="log_path='$reports':print_stacktrace=1"
export LSAN_OPTIONS="suppressions='$suppressions/lsan.supp':print_suppressions=0"
export UCX_MEM_EVENTS=n # its hooks call what ThreadSanitizer has taken over from threads that it no longer knows
export TSAN_OPTIONS="log_path='$reports':suppressions='$suppressions/tsan.supp':print_suppressions=0"
for program in "$build"/runtime/agent/tierckptd "$build"/runtime/agent/tierckpt-supervisor "$build"/runtime/cli/tierckpt; do
    ln -s "$program" "$bin/"
done
export TIERCKPT_BIN_DIR=$bin
trainer=$build/tests/cluster/cluster_trainer
job=test
save_dir=${TCK_SAVE_DIR:-$work/save} # the suite s3 runs tests with a bucket
runtime_dir="" # if not run in $work
settings="" # further JSON members, each with a leading comma
in_node=""  # command prefix that takes a node's name; make_net sets it
mem_interval=2 storage_interval=0 memory_cap=2GiB linger_s=60
run_id=launcher # the launches of a test are those of one launcher, unless it says otherwise
launch=0
# Whatever a test leaves to chance follows from SEED: which victim, and the moment of a fault.
seed=${SEED:-$RANDOM}
RANDOM=$seed

at_end() { :; } # a test may put its own tidying here
finish() {
    local status=$?
    end_all
    at_end
    remove_net
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        echo "seed $seed"
        tail -n 30 "$work"/out.* "$work"/run/*/*/agent.log "$work"/run/*/*/supervisor.log 2>/dev/null
    fi
    no_reports || status=1
    head -n 10 "$work/failure" 2>/dev/null # again, below all that: of a long log only the end is shown
    to_ledger $status
    [ $status -ne 0 ] && [ $status -ne 77 ] || rm -rf "$work"
    exit $status
}
# LeakSanitizer prints this about a thread that exits while it searches. It goes on without that thread's registers.
thread_ended='^==[0-9]+==Unable to get registers from thread [0-9]+\.$'
no_reports() {
    local report status=0
    for report in "$reports".*; do
        if [ -s "$report" ] && grep -qvE "$thread_ended" "$report"; then
            head -n 60 "$report"
            status=1
        fi
    done
    return $status
}
trap finish EXIT

pids_of() { pgrep -f -- "$1" | grep -vx $$; }
end_all() { # also what one of them was just starting
    local pid pids round
    for round in 1 2 3 4 5; do
        pids=$(pids_of "$work/") || return 0
        for pid in $pids; do builtin kill -9 "$pid" 2>/dev/null; done
    done
}
# What a test did, saw and promises goes to $TCK_LEDGER as one line of JSON, if that is set (tests/scenarios.py shows it).
# fault WHAT: one was injected. Signals count by themselves, as one each time that kill is called.
# known_committed STEP: this step of the launch is known to be committed, so a later launch must not restore less, unless
# `excused` says why it may: more was lost than is protected, or an older one was asked for.
excused=""
fault() { echo "$*" >>"$work/faults"; }
kill() {
    [ "$1" = -0 ] || [ "$1" = -CONT ] || fault "kill $1"
    builtin kill "$@"
}
known_committed() { [ -z "$1" ] || echo "$launch $1" >>"$work/known"; }
to_ledger() { # STATUS
    [ -z "${TCK_LEDGER:-}" ] ||
        python3 "$suppressions/../scenarios.py" record "$(basename "$0" .sh)" "$1" "$excused" "$work" >>"$TCK_LEDGER"
}
# chance_ms MOST: none in a third of the cases, else less than that; in `ms`. moment [MOST]: waits so long, 800 at most,
# before a fault. Neither in a subshell, where RANDOM does not follow from the seed.
chance_ms() {
    local bare=$((RANDOM % 3)) chance=$((RANDOM % $1))
    ms=$((bare == 0 ? 0 : chance))
}
sleep_ms() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }
moment() { chance_ms "${1:-800}" && sleep_ms "$ms"; }
# sanitized: what is measured of its memory is the sanitizer's, and it cannot run under strace.
sanitized() { grep -qE '^TCK_SANITIZE:[A-Z]+=.' "$build/CMakeCache.txt"; }
skip() { echo "skipped: $*"; exit 77; }
needs_root() { [ "$(id -u)" = 0 ] || skip "needs root"; }
# fill_storage: save_dir is a small file system that is full. Removing $work/save/other makes room.
fill_storage() {
    needs_root
    mount -t tmpfs -o size=9m tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
    at_end() { umount -l "$work/save"; }
    fault "disk full"
    head -c 8M /dev/zero >"$work/save/other"
}
die() { echo "FAILED: $*" | tee "$work/failure"; exit 1; }

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# With TCK_TREE=3 or so, worlds of so many nodes have leaders that relay, unless the test says when they have.
with_tree() { [ -z "${TCK_TREE:-}" ] || [[ $settings == *tree_from_nodes* ]] || echo ",\"tree_from_nodes\":$TCK_TREE"; }
node_json() { # NODE
    printf '{"job":"%s","node":"%s","runtime_dir":"%s","save_dir":"%s","linger_s":%s,"memory_cap_bytes":"%s","save_mem_interval":%s,"save_storage_interval":%s,"log_level":3,"run_id":"%s"%s}' \
        "$job" "$1" "${runtime_dir:-$work/run}" "$save_dir" "$linger_s" "$memory_cap" "$mem_interval" "$storage_interval" "$run_id" "$settings$(with_tree)"
}

# begin WORLD: a new launch; ranks of it are started with `run_on`.
begin() {
    launch=$((launch + 1))
    world=$1
    mkdir -p "$work/oob.$launch"
    echo "$job" >"$work/job.$launch"
    trainers=()
}
# run_on NODE "RANKS" OPTIONS...: starts trainers of these ranks on a node.
run_on() {
    local node=$1 ranks=$2 rank
    shift 2
    for rank in $ranks; do
        ${in_node:+$in_node "$node"} "$trainer" --json "$(node_json "$node")" --oob "$work/oob.$launch" --rank "$rank" --world "$world" \
            "$@" >"$work/out.$launch.$rank" 2>&1 &
        trainers+=($!)
    done
}
# all_end: every trainer of this launch ended well.
all_end() {
    local pid bad=0
    for pid in "${trainers[@]}"; do wait "$pid" || bad=1; done
    [ $bad -eq 0 ] || die "a trainer of launch $launch failed: $(grep -h -E 'WRONG|ERROR' "$work"/out."$launch".* | head -3)"
}
# none_ends_well WHAT: every trainer of this launch failed; otherwise what happened is said.
none_ends_well() {
    local pid
    for pid in "${trainers[@]}"; do
        wait "$pid" && die "$1"
    done
}
kill_trainers() {
    local pid
    fault "all trainers killed"
    for pid in "${trainers[@]}"; do builtin kill -9 "$pid" 2>/dev/null; done
    wait "${trainers[@]}" 2>/dev/null || true
}
out() { cat "$work/out.$launch.$1"; }
# said RANK PATTERN: the rank of this launch printed it.
said() { grep -qE -- "$2" "$work/out.$launch.$1" 2>/dev/null; }
must_say() { said "$1" "$2" || die "rank $1 did not print '$2' but: $(tail -5 "$work/out.$launch.$1")"; }
restored_step() { sed -nE 's/^RESTORED .*step=([0-9]+) .*/\1/p' "$work/out.$launch.$1"; }
restored_from() { sed -nE "s/^RESTORED .* $2=([0-9]+).*/\1/p" "$work/out.$launch.$1"; } # RANK TIER -> bytes
# fetched NODE TIER: how many shards its agent has had from there ("a peer"), for a restore or, having come back, before one.
fetched() { grep -c -- " was fetched from $2" "$(agent_log "$1")"; }
# all_restored_from TIER RANK...: bytes that these ranks together had from there. What one of a node's ranks has brought
# the others find there already: it counts as local for them.
all_restored_from() {
    local tier=$1 rank bytes sum=0
    shift
    for rank in "$@"; do
        bytes=$(restored_from "$rank" "$tier")
        sum=$((sum + ${bytes:-0}))
    done
    echo $sum
}
# twin_used NODE RANK...: these ranks, which are on this node, had a shard from a twin. When their agent has brought it
# before they asked, only its log tells.
twin_used() {
    local node=$1
    shift
    [ "$(all_restored_from twin "$@")" -gt 0 ] || [ "$(fetched "$node" "a twin")" -gt 0 ]
}

agent_pid() { pids_of "$work/run/$job/$1/config.json" | while read -r p; do ! grep -qsa 'tierckptd' "/proc/$p/comm" || echo "$p"; done; }
supervisor_pid() { pids_of "--runtime-dir $work/run/$job/$1 " | while read -r p; do ! grep -qsa 'tierckpt-superv' "/proc/$p/comm" || echo "$p"; done; }
# newest_commit: newest step whose commit a trainer with --wait-commit has printed in this launch.
newest_commit() { told "$(sed -nE 's/^COMMITTED ([0-9]+)$/\1/p' "$work"/out."$launch".* | sort -n | tail -1)"; }
# stall_ms RANK: the longest, without what the machine itself was late by meanwhile, as pauses of that rank show.
stall_ms() {
    sed -nE 's/^STATS .*stall_max_us=([0-9]+) late_max_us=([0-9]+)$/\1 \2/p' "$work/out.$launch.$1" |
        awk '{ print ($1 > $2 ? int(($1 - $2) / 1000) : 0) }'
}
agent_log() { echo "$work/run/$job/$1/agent.log"; }
# logged NODE PATTERN, log_must_say NODE SECONDS PATTERN
logged() { grep -qE -- "$2" "$(agent_log "$1")"; }
log_must_say() { wait_for "$2" logged "$1" "$3" || die "the log of $1 does not say '$3'"; }
# newest_term NODE: the newest term that its agent has joined, according to the log. Terms are not always consecutive: a
# start that arrives while an agent reserves terms gets the first one after those. joined_after NODE TERM: its agent has
# joined a later term. commits_after TERM: node b has joined a later term, in which a version is committed.
newest_term() { sed -nE 's/.* joined term ([0-9]+):.*/\1/p' "$(agent_log "$1")" | tail -1; }
joined_after() { [ -n "$(newest_term "$1")" ] && [ "$(newest_term "$1")" -gt "$2" ]; }
commits_after() { joined_after b "$1" && logged b " version $(newest_term b)\.[0-9]+ is committed\$"; }
# committed_steps NODE, newest_committed NODE: by the agent's log.
# What was restored has its copies, or something newer has.
protected='version .* has all its copies again|has committed: its recovery is over'
committed_steps() { sed -nE 's/.*version [0-9]+\.([0-9]+) is committed$/\1/p' "$(agent_log "$1")"; }
newest_committed() { told "$(committed_steps "$1" | sort -n | tail -1)"; }
told() { known_committed "$1" && echo "$1"; }
commits() { cat "$(agent_log "$1")" 2>/dev/null | grep -c 'is committed$' || true; }
has_commits() { [ "$(commits "$1")" -ge "$2" ]; }
# more_commits NODE COUNT SECONDS: so many more from now on.
more_commits() { wait_for "$3" has_commits "$1" $(($(commits "$1") + $2)); }
# restores_all: a new launch restores, bit by bit as the trainers check, all that was committed; for nodes a and b with a rank each.
restores_all() {
    local newest
    newest=$(newest_committed b)
    kill_trainers
    begin 2
    run_on a "0" --steps $((newest + 20)) --done
    run_on b "1" --steps $((newest + 20)) --done
    all_end
    [ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
}
is_json() { python3 -c 'import json,sys; json.load(sys.stdin)'; }
# same_agent NODE PID: it was not restarted.
same_agent() { [ "$(agent_pid "$1")" = "$2" ]; }
# kill_node NODE: agent, supervisor, and with them the node's memory. First both are stopped, or one starts the other again.
kill_node() {
    fault "node lost"
    wait_for 60 node_dies "$1" || die "node $1 does not die"
}
node_dies() {
    local pid pids
    pids=$(supervisor_pid "$1"; agent_pid "$1")
    for pid in $pids; do builtin kill -STOP "$pid" 2>/dev/null; done
    [ "$pids" = "$(supervisor_pid "$1"; agent_pid "$1")" ] || return 1 # one was just starting the other
    for pid in $pids; do builtin kill -9 "$pid" 2>/dev/null; done
    for pid in $pids; do while grep -qsa . "/proc/$pid/cmdline"; do sleep 0.01; done; done
}
# has_reserved NODE [COUNT]: its agent has so many terms (1) for starts without storage.
has_reserved() {
    ask "$1" --json status | python3 -c 'import json, sys
reserved = json.load(sys.stdin)["reserved"]
sys.exit("first" not in reserved or reserved["last"] - reserved["first"] + 1 < int(sys.argv[1]))' "${2:-1}"
}
no_agent() { [ -z "$(agent_pid "$1")" ]; }
ask() { # NODE COMMAND...
    local node=$1
    shift
    printf '%s' "$(node_json "$node")" >"$work/$node.json"
    "$bin/tierckpt" --config "$work/$node.json" "$@"
}

# make_net NODE...: each node in a network namespace of its own, all on one switch in another; from now on run_on starts
# its trainers, and so the agents, there. Names carry this test's pid: tests run at the same time. With net_family=6 they
# have no IPv4 addresses.
net_nodes=() net_family=4
make_net() {
    local node i=0
    needs_root
    ip netns add "tck$$-switch" 2>/dev/null || skip "no network namespaces here"
    net_nodes=(switch "$@")
    ip -n "tck$$-switch" link add bridge type bridge || skip "no bridges here"
    ip -n "tck$$-switch" link set bridge up
    for node in "$@"; do
        i=$((i + 1))
        ip netns add "tck$$-$node"
        ip -n "tck$$-switch" link add "to-$node" type veth peer name net0 netns "tck$$-$node" || skip "no veth here"
        ip -n "tck$$-switch" link set "to-$node" master bridge up
        ip -n "tck$$-$node" link set lo up
        if [ "$net_family" = 6 ]; then
            ip -n "tck$$-$node" address add "fd77::$i/64" dev net0 nodad || skip "no IPv6 here"
        else
            ip -n "tck$$-$node" address add "10.77.0.$i/24" dev net0
        fi
        ip -n "tck$$-$node" link set net0 up
    done
    in_node=enter
    settings="$settings"',"net_device":"net0"'
}
# make_nets NODE...: the same with two networks: each node has net0 (10.77.0.N) on one switch and net1 (10.77.1.N) on another.
make_nets() {
    local node i=0 net
    make_net "$@"
    ip -n "tck$$-switch" link add bridge1 type bridge && ip -n "tck$$-switch" link set bridge1 up
    for node in "$@"; do
        i=$((i + 1))
        ip -n "tck$$-switch" link add "to1-$node" type veth peer name net1 netns "tck$$-$node"
        ip -n "tck$$-switch" link set "to1-$node" master bridge1 up
        ip -n "tck$$-$node" address add "10.77.1.$i/24" dev net1
        ip -n "tck$$-$node" link set net1 up
    done
    settings=${settings/'"net_device":"net0"'/'"net_device":"net0,net1"'}
}
remove_net() {
    local node
    for node in "${net_nodes[@]}"; do ip netns delete "tck$$-$node" 2>/dev/null; done
}
# enter NODE COMMAND...: becomes the command on that node (so $! of it in the background is the command's pid).
enter() {
    local node=$1
    shift
    exec ip netns exec "tck$$-$node" "$@"
}
# cut_link NODE, heal_link NODE: its net0, at the switch. cut_link1 and heal_link1: its net1.
cut_link1() { fault "link cut"; ip -n "tck$$-switch" link set "to1-$1" down; }
heal_link1() { ip -n "tck$$-switch" link set "to1-$1" up; }
cut_link() { fault "link cut"; ip -n "tck$$-switch" link set "to-$1" down; }
heal_link() { ip -n "tck$$-switch" link set "to-$1" up; }
