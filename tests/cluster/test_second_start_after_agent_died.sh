#!/usr/bin/env bash
# A second start that comes right after the agent of the only node has died is refused, too: the trainers are alive,
# although the restarted agent does not know them yet.
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
trainers=("${first[@]}")
kill_trainers
