#!/usr/bin/env bash
# A second start that comes right after the agent of the only node has died is refused, too, and so are the commands that
# would end the job: the trainers are alive, although the restarted agent does not know them yet.
. "$(dirname "$0")/lib.sh" "$1"
run_id=""
begin 2
run_on a "0 1" --launch 1 --steps 100000 --step-ms 20
first=("${trainers[@]}")
for round in 1 2 3; do
    more_commits a 3 60 || die "no commit: $(out 0 | tail -3)"
    kill -9 "$(agent_pid a)"
    moment 300
    begin 2
    run_on a "0 1" --launch 2 --steps 10
    none_ends_well "a second start took the job over"
    grep -qE 'ERROR attach: .*held by a start whose trainers are alive: rank [01] of 2' "$work/out.$launch.0" ||
        die "rank 0 of launch $launch was not refused so: $(out 0 | tail -3)"
done
more_commits a 3 60 || die "the first start no longer commits"
refused() { # COMMAND...: it answers that trainers may be alive
    ask a "$@" >"$work/said" 2>&1 && die "$1 ends a job that is training"
    grep -qE 'may be alive|just been started again' "$work/said" || die "$1 does not say why: $(cat "$work/said")"
}
for command in forget stop; do
    for pid in "${first[@]}"; do kill -STOP "$pid"; done # they take their time to reconnect
    kill -9 "$(agent_pid a)"
    [ $command = stop ] || refused forget
    wait_for 60 ask a status >/dev/null 2>&1 || die "no agent is back"
    refused $command
    for pid in "${first[@]}"; do kill -CONT "$pid"; done
    more_commits a 3 60 || die "the first start no longer commits after $command"
done
trainers=("${first[@]}")
kill_trainers
