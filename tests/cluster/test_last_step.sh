#!/usr/bin/env bash
# The last step of a training is on storage when tck_save_last returns: a step that was not due, one that was only in
# memory, one that was being drained, or one during which the coordinator's agent or the memory of a whole node is
# lost.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"slots":2'
storage_interval=5
none_left() { no_agent a && no_agent b; }
# train LAST OPTIONS...: up to that step, and everything that memory has is gone afterwards.
train() {
    begin 2
    run_on a "0" --twins 2 --save-last --done --steps "$@"
    run_on b "1" --twins 2 --save-last --done --steps "$@"
}
ended() { # LAST FROM
    all_end
    for rank in 0 1; do
        must_say $rank "^LAST $1\$"
        [ -z "$2" ] || must_say $rank "^RESTORED .*step=$2 "
    done
    wait_for 60 none_left || die "the agents do not leave after the job is done"
}
train 3 # not due
ended 3 ""
train 6 # to memory alone
ended 6 3
train 10 # to storage
ended 10 6
train 12 --step-ms 1000
wait_for 60 said 0 '^STEP 11' || die "no step 11: $(out 0)"
kill -9 "$(agent_pid a)"
ended 12 10
train 14 --step-ms 300
wait_for 60 said 0 '^STEP 13' || die "no step 13: $(out 0)"
kill_node b # with its supervisor: what is left is what the trainers have
ended 14 12
train 16 --step-ms 300
wait_for 60 said 0 '^STEP 15' || die "no step 15: $(out 0)"
kill_node a # the coordinator's, while step 15 is on its way to storage
ended 16 14
begin 2
run_on a "0" --twins 2 --steps 16 --done
run_on b "1" --twins 2 --steps 16 --done
all_end
for rank in 0 1; do must_say $rank '^RESTORED .*step=16 '; done

job=alone # nothing is left of what it has saved
begin 1
run_on a "0" --steps 3 --step-ms 300 --save-last --done
wait_for 60 said 0 '^STEP 2' || die "no step 2: $(out 0)"
kill_node a
all_end
must_say 0 '^LAST 3$'

job=anew # something else, such as a service manager, has started another agent before the trainer reconnects
begin 1
run_on a "0" --steps 3 --step-ms 1000 --save-last --done
wait_for 60 said 0 '^STEP 2' || die "no step 2: $(out 0)"
kill_node a
"$bin/tierckptd" --config "$work/run/$job/a/config.json" >"$work/by_hand" 2>&1 &
all_end
must_say 0 '^LAST 3$'

# A storage that cannot be written to is named as what it waited for.
job=full
mount -t tmpfs -o size=1m none "$work/save" 2>/dev/null || exit 0 # no mounts here; the rest was seen
at_end() { umount -l "$work/save"; }
begin 1
run_on a "0" --steps 3 --save-last --last-ms 3000
none_ends_well "the last step is said to be in a storage that has no room: $(out 0)"
must_say 0 'ERROR save last: step 3 is committed, but not on storage after 3000 ms'
