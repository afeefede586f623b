#!/usr/bin/env bash
# on_node_loss "report": a node whose agent and supervisor are gone leaves its trainers running, without commits. This
# is reported to the trainers of that node, to those whose agent notices it, and by the command.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500,"version_timeout_ms":3000'
forsaken='agent and supervisor of this node are gone, and its memory with them: nothing is saved here'
lost() { echo "node $1 (of term [0-9]+ )?is lost.*nothing commits until it is back or the job is restarted"; }
status_tells() { ! ask "$1" status >"$work/status" && grep -qE "^WARNING: $(lost "$2")" "$work/status"; }
train() {
    begin 2
    run_on a 0 --steps 100000 --step-ms 20 --wait-commit
    run_on b 1 --steps 100000 --step-ms 20 --wait-commit
    wait_for 60 said 0 '^COMMITTED' && wait_for 60 said 1 '^COMMITTED' || die "no commit: $(out 0 | tail -3)"
    newest=$(newest_commit)
}
train
ask a status >"$work/status" || die "the status of a whole job is not good: $(cat "$work/status")"
kill_node b
wait_for 60 said 1 "^SKIPPED .*$forsaken" || die "rank 1 is not told: $(out 1 | tail -3)"
wait_for 60 said 0 "^WHY .*$(lost b)" || die "rank 0 is not told: $(out 0 | tail -3)"
log_must_say a 60 "$(lost b)"
wait_for 60 status_tells a b || die "the command does not tell: $(cat "$work/status")"
! ask b status >"$work/status" 2>&1 || die "somebody answers on node b"
grep -q 'no agent of job test answers on node b' "$work/status" || die "the command says on node b: $(cat "$work/status")"
kill_trainers
before=$newest
train
[ "$(restored_step 0)" -ge "$before" ] || die "restored $(restored_step 0), but $before was committed"
kill_node a # the coordinator's
wait_for 60 said 0 "^SKIPPED .*$forsaken" || die "rank 0 is not told: $(out 0 | tail -3)"
log_must_say b 60 "$(lost a)"
wait_for 60 status_tells b a || die "the command does not tell on b: $(cat "$work/status")"
