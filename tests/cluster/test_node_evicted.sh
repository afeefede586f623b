#!/usr/bin/env bash
# A node is taken out of a running job for maintenance: the job is started again without it, its agent is asked to
# exit, and no committed step is lost or read from storage. The other nodes have its copies by then: the node can be
# removed, and another one can be lost right after it without any loss.
. "$(dirname "$0")/lib.sh" "$1"
train() { # NODE-OF-RANK-1 OPTIONS...
    local node=$1
    shift
    begin 3
    run_on a 0 --step-ms 20 --lockstep "$@"
    run_on "$node" 1 --step-ms 20 --lockstep "$@"
    run_on c 2 --step-ms 20 --lockstep "$@"
}
nothing_lost() { # FLOOR WHAT
    local rank
    for rank in 0 1 2; do
        wait_for 60 said $rank '^RESTORED' || die "$2: rank $rank does not restore: $(out $rank | tail -3)"
        [ "$(restored_step $rank)" -ge "$1" ] || die "$2: rank $rank restored $(restored_step $rank), but $1 was committed"
        [ "$(restored_from $rank storage)" = 0 ] || die "$2: storage was read: $(out $rank | grep RESTORED)"
    done
}
protections() { cat "$(agent_log "$1")" | grep -cE "$protected" || true; }
protected_since() { [ "$(protections "$1")" -gt "$2" ]; }
train b --steps 100000
wait_for 60 has_commits a 5 || die "no commit: $(out 0 | tail -3)"
moment
kill_trainers
newest=$(newest_committed a) before=$(protections a)
fault "node b is evicted"
train d --steps 100000 # its agent still lives: what is only there is fetched from it
nothing_lost "$newest" "without b"
wait_for 60 protected_since a "$before" || die "the copies that b held are not made again"
kill -TERM "$(agent_pid b)"
wait_for 60 no_agent b || die "the agent of b does not leave"
no_supervisor() { [ -z "$(supervisor_pid b)" ]; }
wait_for 60 no_supervisor || die "the supervisor of b stays"
more_commits a 3 60 || die "no commits after b has left"
kill_trainers
newest=$(newest_committed a)
kill_node d
train e --steps 100000
nothing_lost "$newest" "without b and d"
kill_trainers
