#!/usr/bin/env bash
# The runtime directory of two nodes is deleted while the job runs. Trainers that are started again find their agents,
# at once as well as later, and the newest step in memory; there is one agent on each node. Then the directory has all
# its files again: an agent that dies is restarted with its memory.
. "$(dirname "$0")/lib.sh" "$1"
linger_s=300
start() { # STEPS OPTIONS...
    local steps=$1
    shift
    begin 2
    run_on a "0" --steps "$steps" --step-ms 20 --wait-commit "$@"
    run_on b "1" --steps "$steps" --step-ms 20 --wait-commit "$@"
}
commits_soon() { wait_for 60 said 0 '^COMMITTED' || die "no commit in launch $launch: $(out 0 | tail -3)"; }
from_memory() { # STEP
    local rank node
    for rank in 0 1; do
        [ "$(restored_step $rank)" -ge "$1" ] ||
            die "launch $launch: rank $rank restored $(restored_step $rank), but $1 was committed"
        [ "$(restored_from $rank storage)" = 0 ] || die "launch $launch: not from memory: $(out $rank | head -5)"
    done
    for node in a b; do
        [ "$(agent_pid $node)" = "${agent[$node]}" ] || die "launch $launch: agents of $node: $(agent_pid $node)"
        [ "$(supervisor_pid $node)" = "${supervisor[$node]}" ] ||
            die "launch $launch: supervisors of $node: $(supervisor_pid $node)"
    done
}
delete_all() {
    fault "the runtime directory deleted"
    rm -rf "$work/run/test"
}
is_made_again() { logged "$1" "the files of this agent in .* were deleted" && [ -S "$work/run/test/$1/notify.sock" ]; }
declare -A agent supervisor
storage_interval=4
start 100000
commits_soon
for node in a b; do agent[$node]=$(agent_pid $node) supervisor[$node]=$(supervisor_pid $node); done

for order in running idle both; do
    moment
    [ $order = running ] || kill_trainers
    delete_all
    [ $order != running ] || kill_trainers
    newest=$(newest_commit)
    if [ $order = both ]; then
        for node in a b; do wait_for 60 is_made_again $node || die "$node: $(ls "$work/run/test/$node")"; done
        delete_all
    fi
    start 100000
    commits_soon
    from_memory "$newest"
done
for node in a b; do wait_for 60 is_made_again $node || die "$node: $(ls "$work/run/test/$node")"; done
[ "$(cat "$work"/run/test/*/agent.log | grep -c 'lost the supervisor')" = 0 ] || die "another supervisor was started"

# Everything that a restarted agent needs is there.
kill -9 "${agent[a]}"
back() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "${agent[a]}" ]; }
wait_for 60 back || die "the agent was not restarted"
agent[a]=$(agent_pid a)
more_commits a 2 60 || die "no commits after the agent was restarted"
kill_trainers
newest=$(newest_commit)
start $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
