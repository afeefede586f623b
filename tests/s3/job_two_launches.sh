#!/usr/bin/env bash
# Two launchers start the job at once on nodes that share nothing but the bucket: one gets it and trains on, the other one
# gets an error that names its holder, as does a launch that comes later.
. "$(dirname "$0")/jobs.sh" "$1"
launch_on() { # NODE NODE RUN_ID
    run_id=$3
    begin 2
    run_on "$1" 0 --launch "$launch" --steps 100000 --step-ms 20
    run_on "$2" 1 --launch "$launch" --steps 100000 --step-ms 20
}
launch_on a b one
first=("${trainers[@]}") one=$launch
launch_on c d two
second=("${trainers[@]}") two=$launch
decided() { grep -q '^ERROR' "$work/out.$one.0" "$work/out.$two.0" && grep -q '^STEP 5$' "$work/out.$one.0" "$work/out.$two.0"; }
wait_for 120 decided || die "no launch is refused: $(tail -n 2 "$work"/out.*)"
if grep -q '^ERROR' "$work/out.$one.0"; then
    winner=c loser=$one alive=("${second[@]}")
else
    winner=a loser=$two alive=("${first[@]}")
fi
for rank in 0 1; do
    grep -qE "^ERROR .*(job test is held by a start whose trainers are alive|another start)" "$work/out.$loser.$rank" ||
        die "the loser's error does not say why: $(cat "$work/out.$loser.$rank")"
done
more_commits $winner 5 60 || die "the winner does not train on: $(tail -5 "$(agent_log $winner)")"
launch_on e f three
none_ends_well "a second start took the job over"
must_say 0 '^ERROR attach: .*job test is held by a start whose trainers are alive'
more_published $winner 1 60
all_whole $winner
trainers=("${alive[@]}")
kill_trainers
no_secret
