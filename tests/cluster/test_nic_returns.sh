#!/usr/bin/env bash
# An address that no session uses is checked: that it does not answer is noticed before it is needed, and that it answers
# again, too. After it has answered for a minute, the session returns to the first address, and commits continue.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
train_on_two_networks
starts_at_first
cut_link1 b
log_must_say a 90 'node b does not answer at its address 10\.77\.1\.2:[0-9]+: no answer'
log_must_say b 90 'node a does not answer at its address 10\.77\.1\.1:[0-9]+: no answer'
heal_link1 b
log_must_say a 90 'node b answers again at its address 10\.77\.1\.2:'
! logged a 'node b is down' || die "a session ended though its address works"

switches_to 10.77.1.2 cut_link b
healed=$SECONDS before=$(ups a b 10.77.0.2)
returns() { [ $((SECONDS - healed)) -ge 60 ] && is_up_at a b 10.77.0.2 "$before"; }
heal_link b
wait_for 400 returns || die "the session does not return to the first address"
logged a 'node b: its address 10\.77\.0\.2:[0-9]+ has been answering for 60 s, so the session returns to it' ||
    logged b 'node a: its address 10\.77\.0\.1:[0-9]+ has been answering for 60 s, so the session returns to it' ||
    die "the log does not say why"
more_commits a 3 60 || die "no commits after it"
more_commits b 3 60 || die "no commits on b after it"
none_is_lost "the session has returned"
restores_all
