#!/usr/bin/env bash
# Storage hangs below a running job: commits to memory go on, the ranks and status are told, a job that is started again
# while a drain still hangs is formed and restores from memory, one that cannot claim its term is told so within seconds, and
# when storage answers again the next version is published.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
lying=$build/tests/storage_faults/lying_fs
[ -x "$lying" ] || skip "this build has no lying_fs (libfuse3)"
mkdir "$work/backing"
mount -t tmpfs tmpfs "$work/backing" 2>/dev/null || skip "no tmpfs can be mounted here" # a disk may take longer than is allowed
truncate -s 256 "$work/control"
"$lying" "$work/backing" "$work/control" "$work/save" >/dev/null 2>"$work/lying.log" </dev/null &
server=$!
at_end() { umount -l "$work/save" "$work/backing" 2>/dev/null; }
wait_for 20 mountpoint -q "$work/save" || skip "no FUSE here"
# hangs WHAT: each call on a file with WHAT in its path hangs for 45 s; "nothing": none does. Not a name that is looked up,
# made or moved, for which a publish may wait with the lock of the directory in which claims are made.
hangs() {
    python3 - "$work/control" "$1" <<'PYTHON'
import struct, sys
only = sys.argv[2]
with open(sys.argv[1], "r+b") as control:
    ms = 0 if sys.argv[2] == "nothing" else 45000
    control.write(struct.pack("<QIIII64s64s", 1, 1000 if ms else 0, 1 << 9, 0x13a, ms, only.encode(), b""))
PYTHON
}
storage_interval=4
settings=',"storage_timeout_ms":2000,"slots":2,"restore_wait_ms":1000'
train=(--steps 100000 --step-ms 20 --lockstep)
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
log_must_say a 60 'is published'
fault "everything in the stage hangs"
moment
hangs stage/ # not the making of it, which locks the directory that a claim is made in
wait_for 60 said 0 "^HEALTH .*undrained=[1-9].* $work/save/test does not answer: a (drain|publish) has " ||
    die "rank 0 is not told: $(grep HEALTH "$work"/out.*; tail -3 "$work"/run/test/a/agent.log)"
more_commits a 20 60 || die "no commits while storage hangs"
! timeout 20 "$bin/tierckpt" --config "$work/run/test/a/config.json" status >"$work/said" || die "status is good"
grep -q "storage fails since .*$work/save/test does not answer" "$work/said" || die "status does not say it: $(cat "$work/said")"

kill_trainers
before=$(newest_committed a)
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
wait_for 60 said 0 '^RESTORED' || die "no restore from memory while a drain hangs: $(out 0 | tail -3; tail -5 "$(agent_log a)")"
[ "$(restored_step 0)" -ge "$before" ] || die "restored $(restored_step 0), $before was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from memory"
more_commits a 20 60 || die "no commits in the new term while storage hangs"

fault "all of storage hangs"
kill_trainers
before=$(newest_committed a)
kill -STOP "$server"
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
wait "${trainers[@]}" && die "a term without a claim"
must_say 0 "^ERROR attach: .*$work/save/test does not answer: the claim of a term has not moved for 2000 ms"
[ -n "$(agent_pid a)" ] || die "the agent is gone"

moment
hangs nothing
kill -CONT "$server"
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
wait_for 90 said 0 '^RESTORED' || die "no restore though storage answers: $(out 0 | tail -3)"
[ "$(restored_step 0)" -ge "$before" ] || die "restored $(restored_step 0), $before was committed"
published() { grep -c 'is published' "$(agent_log a)"; }
before=$(published)
publishes() { [ "$(published)" -gt "$before" ]; }
wait_for 120 publishes || die "nothing is published though storage answers: $(tail -5 "$(agent_log a)")"
ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
ask a verify published >"$work/said" || die "verify: $(cat "$work/said")"

# An agent that is told to end while storage hangs does end, and one that cannot reach storage at its start says so.
# The kernel lets no process end that waits for a request which the stopped file system had already taken.
kill_trainers
idle() { ask a --json status | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["draining"] != {})'; }
wait_for 60 idle || die "the last drain does not end: $(tail -5 "$(agent_log a)")"
sleep 1 # until what the publish has superseded is removed
fault "all of storage hangs, and the agents are told to end"
kill -STOP "$server"
ended=$(agent_pid b)
kill -TERM "$ended"
gone() { ! builtin kill -0 "$1" 2>/dev/null; }
wait_for 60 gone "$ended" || die "the agent of b does not end while storage hangs"
begin 1
run_on c 0 --steps 2
wait "${trainers[@]}" && die "an agent without storage"
must_say 0 "^ERROR attach: .*save_dir $work/save does not answer"
kill -CONT "$server"
