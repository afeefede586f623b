#!/usr/bin/env bash
# A node that was cut off while the job continued elsewhere comes back: what is left of the old term is refused, the
# new one is not disturbed, and nothing of the old trainers is committed.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500,"restore_wait_ms":1000'
make_net a b c
begin 2
run_on a "0" --steps 100000 --step-ms 20
run_on b "1" --steps 100000 --step-ms 20
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
moment
cut_link b
log_must_say a 60 'node b is down'
kill -9 "${trainers[0]}"
newest=$(newest_committed a)
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on c "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits c 3 || die "no commit without b: $(out 0 | tail -3)"
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
before=$(commits b)
moment
heal_link b
more_commits c 20 60 || die "the new term stands still since b is back"
sleep 2
[ "$(commits b)" = "$before" ] || die "b committed something of the old term"
[ "$(grep -c 'claimed term' "$(agent_log a)")" = 2 ] || die "another term was formed"
