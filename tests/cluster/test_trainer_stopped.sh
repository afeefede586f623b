#!/usr/bin/env bash
# One trainer is stopped: nothing commits, and the other ones continue training. When it continues, so do commits. A
# second process that claims the same rank is refused and disturbs nothing.
. "$(dirname "$0")/lib.sh" "$1"
step_of() { out "$1" | sed -nE 's/^STEP ([0-9]+)$/\1/p' | tail -1; }
begin 2
run_on a "0 1" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
moment
kill -STOP "${trainers[1]}"
last=$(step_of 1)
far_ahead() { [ "$(step_of 0)" -gt $((last + 100)) ]; }
wait_for 60 far_ahead || die "rank 0 stands still"
[ "$(newest_committed a)" -le $((last + 1)) ] || die "$(newest_committed a) was committed, but rank 1 stopped after $last"
moment
kill -CONT "${trainers[1]}"
beyond_stop() { [ "$(step_of 1)" -gt $((last + 10)) ]; }
wait_for 60 beyond_stop || die "rank 1 stands still"
kill -9 "${trainers[0]}" # they are at different steps by now: as a launcher would, all are ended
kill_trainers
begin 2
run_on a "0 1" --steps 100000 --step-ms 20
wait_for 60 said 1 '^STEP' || die "the second launch does not run: $(out 1)"
more_commits a 3 60 || die "no commit in the second launch"

first=$launch
cp -r "$work/oob.$first" "$work/oob.$((first + 1))" # the same meeting point, so it gets as far as the agent
begin 2
run_on a "1" --steps 4
wait_for 60 said 1 '^EXIT' || die "the second rank 1 neither runs nor ends: $(out 1)"
must_say 1 '^ERROR attach'
more_commits a 3 60 || die "the doubled rank disturbed the training"
