#!/usr/bin/env bash
# A start with another configuration than the running agent's changes the keys that may change. For other keys the
# agent is restarted and keeps its memory, and while other trainers use it the start is refused with the key and both
# values.
. "$(dirname "$0")/lib.sh" "$1"
save=$work/save
eval "$(declare -f node_json | sed 's/^node_json/plain_json/')"
node_json() { plain_json "$1" | sed "s#\"save_dir\":\"$work/save\"#\"save_dir\":\"$save\"#"; }
begin 1
run_on a "0" --launch 1 --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
kill_trainers
agent=$(agent_pid a)

# The interval.
mem_interval=5
begin 1
run_on a "0" --launch 2 --steps 100000 --step-ms 20
log_must_say a 60 'this start changed save_mem_interval from 2 to 5'
more_commits a 3 60 || die "no commit: $(out 0 | tail -3)"
for step in $(sed -nE "s/.*version $(newest_term a)\.([0-9]+) is committed$/\1/p" "$(agent_log a)"); do
    [ $((step % 5)) = 0 ] || die "step $step was saved, the interval is 5"
done
same_agent a "$agent" || die "the agent was started again for an interval"

# Another number of slots, while that trainer lives.
settings=',"slots":2'
begin 1
run_on a "0" --launch 3 --steps 10
wait "${trainers[0]}"
must_say 0 'ERROR attach: .*slots: the agent of this node was started with "3", this start has "2", and the trainer of rank 0 \(pid [0-9]+\) is using that agent'
settings=""
more_commits a 2 60 || die "the trainer was disturbed"
same_agent a "$agent" || die "the agent was started again although it is used"
newest=$(newest_committed a)
for pid in $(pids_of "$work/oob.2 "); do builtin kill -9 "$pid"; done

# Another number of slots, when none lives: what memory has is kept, in the slots that it has.
settings=',"slots":2'
begin 1
run_on a "0" --launch 5 --steps $((newest + 10))
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "it was not restored from memory: $(out 0 | grep RESTORED)"
log_must_say a 60 'keeps its 3 slots, although slots is 2 now'
settings=""

# Another directory, as after a full disk: what memory has goes there.
save=$work/other
mkdir "$save"
begin 1
run_on a "0" --launch 4 --steps $((newest + 20)) --save-last --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "it was not restored from memory: $(out 0 | grep RESTORED)"
last=$(printf 'v%012d' "$(said 0 '^LAST' && out 0 | sed -nE 's/^LAST ([0-9]+)$/\1/p')")
compgen -G "$save/test/$last.t*" >/dev/null || die "the last step is not in the new directory: $(ls "$save/test")"
! compgen -G "$work/save/test/$last.t*" >/dev/null || die "the last step is in the old directory"
