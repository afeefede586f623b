#!/usr/bin/env bash
# A system that ends a job sends SIGTERM, and SIGKILL some time later. The agents use this time to drain the newest
# version, which only memory has, to storage, without the trainers. The next start continues from it.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"grace_s":60'
for round in 1 2 3; do
    begin 4
    run_on a "0 1" --steps 100000 --step-ms 20
    run_on b "2 3" --steps 100000 --step-ms 20
    wait_for 60 has_commits a 2 || die "round $round: no commit: $(out 0 | tail -3)"
    moment
    kill_trainers
    agents="$(agent_pid a) $(agent_pid b)" supervisors="$(supervisor_pid a) $(supervisor_pid b)"
    case $round in
    1) asked=$agents ;;                 # by a service manager
    2) asked=$supervisors ;;            # by a container, whose first process is the supervisor
    3) asked="$agents $supervisors" ;; # by a batch system
    esac
    for pid in $asked; do kill -TERM "$pid"; done
    for node in a b; do
        wait_for 120 no_agent "$node" || die "round $round: the agent of node $node does not leave"
        log_must_say "$node" 60 'exiting: the system has asked this agent to end .SIGTERM.'
        ! logged "$node" 'is lost now' || die "round $round: something was lost on node $node"
        wait_for 60 grep -q 'exited with status 0' "$work/run/test/$node/supervisor.log" || die "round $round: $node did not end well"
    done
    committed=$(newest_committed a)
    begin 4
    run_on a "0 1" --steps 1
    run_on b "2 3" --steps 1
    all_end
    [ "$(restored_step 0)" = "$committed" ] || die "round $round: restored $(restored_step 0), and step $committed was committed"
    [ "$(restored_from 0 storage)" -gt 0 ] || die "round $round: not from storage"
    kill_node a && kill_node b || die "round $round: an agent has not ended"
    rm "$(agent_log a)" "$(agent_log b)" "$work"/run/test/?/supervisor.log
done
