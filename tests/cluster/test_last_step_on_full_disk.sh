#!/usr/bin/env bash
# If the disk is full when the training ends, the trainer says after some seconds what it waits for and for how long; the
# last step stays in memory and its error names the path and the reason. The agents keep what is only in memory although the trainers say that the job is done. When there is room
# again, the next launch restores it from memory.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
mount -t tmpfs -o size=9m tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/save"; }
storage_interval=10
fault "disk full"
head -c 8M /dev/zero >"$work/save/other"
begin 2
run_on a "0 1" --steps 12 --save-last --last-ms 8000 --done
for pid in "${trainers[@]}"; do wait "$pid" && die "the last step is said to be in storage"; done
log_must_say a 60 "rank0.* step 12 is committed, but not on storage: .*$work/save/test/.*[Nn]o space left.*save_last waits for it for [1-9][0-9]* s more"
must_say 0 "^ERROR save last: .*step 12 is committed, but not on storage after 8000 ms: .*$work/save/test/.*[Nn]o space left"
log_must_say a 60 "has ended, but its last step is not on storage .*$work/save/test/.*[Nn]o space left"
before=$(agent_pid a)
sleep 5 # an agent whose job is done leaves after two seconds
same_agent a "$before" || die "the agent has left, and the only copy with it"
moment
rm "$work/save/other"
begin 2
run_on a "0 1" --steps 14 --save-last --done
all_end
[ "$(restored_step 0)" = 12 ] || die "restored $(restored_step 0) instead of 12"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from memory"
must_say 0 '^LAST 14$'
wait_for 60 no_agent a || die "the agent stays though all is in storage"
