#!/usr/bin/env bash
# Storage hangs below a running job: commits to memory continue, and the ranks and status report it. A job that is
# restarted while a drain still hangs is formed and restores from memory, and so is one that is started while all of
# storage hangs, more than once. A second start is refused as always, and when storage answers again the next version
# is published.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=4
settings=',"storage_timeout_ms":2000,"slots":2,"restore_wait_ms":1000'
train=(--steps 100000 --step-ms 20 --lockstep)
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
log_must_say a 60 'is published'
fault "everything in the stage hangs"
moment
# Not a name that is looked up, made or moved: a publish may wait for that with the lock of the directory in which claims are made.
lie 1000 HANG stage/ "" open,read,write,list,sync 45000
wait_for 60 said 0 "^HEALTH .*undrained=[1-9].* $work/save/test does not answer: a (drain|publish) has " ||
    die "rank 0 is not told: $(grep HEALTH "$work"/out.*; tail -3 "$work"/run/test/a/agent.log)"
more_commits a 20 60 || die "no commits while storage hangs"
! timeout 20 "$bin/tierckpt" --config "$work/run/test/a/config.json" status >"$work/said" || die "status is good"
grep -q "storage has been failing since .*$work/save/test does not answer" "$work/said" || die "status does not say it: $(cat "$work/said")"

kill_trainers
before=$(newest_committed a)
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
wait_for 60 said 0 '^RESTORED' || die "no restore from memory while a drain hangs: $(out 0 | tail -3; tail -5 "$(agent_log a)")"
[ "$(restored_step 0)" -ge "$before" ] || die "restored $(restored_step 0), $before was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from memory"
more_commits a 20 60 || die "no commits in the new term while storage hangs"

wait_for 60 has_reserved a || die "no terms are reserved: $(tail -5 "$(agent_log a)")"
fault "all of storage hangs"
kill_trainers
before=$(newest_committed a)
stop_serving
for round in 1 2; do
    begin 2
    if [ $round = 1 ]; then # rank 0 is on the node of the coordinator, and then on the other one
        run_on a 0 "${train[@]}"
        run_on b 1 "${train[@]}"
    else
        run_on b 0 "${train[@]}"
        run_on a 1 "${train[@]}"
    fi
    wait_for 60 said 0 '^RESTORED' || die "no restore while all of storage hangs: $(out 0 | tail -3; tail -5 "$(agent_log a)")"
    wait_for 60 said 1 '^RESTORED' || die "rank 1 does not restore: $(out 1 | tail -3)"
    for rank in 0 1; do
        [ "$(restored_step $rank)" -ge "$before" ] || die "restored $(restored_step $rank), $before was committed"
        [ "$(restored_from $rank storage)" = 0 ] || die "rank $rank: from storage"
    done
    more_commits a 10 60 || die "no commits in a term that was granted while storage hangs"
    [ $round = 2 ] || { kill_trainers; before=$(newest_committed a); }
done
logged a 'term [0-9]+ was granted by the agent of node a without storage' || die "the log does not say who has granted the term"
logged b 'term [0-9]+ was granted by the agent of node a without storage' || die "b's log does not say it"
first=("${trainers[@]}")
run_id=another_launcher
begin 1
run_on a 0 --steps 10
none_ends_well "a second start took the job over"
must_say 0 '^ERROR attach: .*job test is held by a start whose trainers are alive'
trainers=("${first[@]}")
run_id=launcher
more_commits a 5 60 || die "no commits after a second start was refused"

moment
lie 0
kill -CONT "$server"
published() { grep -c 'is published' "$(agent_log a)"; }
before=$(published)
publishes() { [ "$(published)" -gt "$before" ]; }
wait_for 120 publishes || die "nothing is published though storage answers: $(tail -5 "$(agent_log a)")"
wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")" # the coordinator of node b tells it
ask a verify published >"$work/said" || die "verify: $(cat "$work/said")"

# An agent that is asked to exit while storage hangs does exit, and one that cannot reach storage at its start reports it.
# The kernel lets no process end that waits for a request which the stopped file system had already taken.
kill_trainers
idle() { ask a --json status | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["draining"] != {})'; }
wait_for 60 idle || die "the last drain does not end: $(tail -5 "$(agent_log a)")"
sleep 1 # until what the publish has superseded is removed
fault "all of storage hangs, and the agents are asked to exit"
stop_serving
ended=$(agent_pid b)
kill -TERM "$ended"
gone() { ! builtin kill -0 "$1" 2>/dev/null; }
wait_for 60 gone "$ended" || die "the agent of b does not end while storage hangs"
begin 1
run_on c 0 --steps 2
none_ends_well "an agent without storage"
must_say 0 "^ERROR attach: .*save_dir $work/save does not answer"
kill -CONT "$server"
