#!/usr/bin/env bash
# Nodes with two interfaces that both fail: the node is lost as with one, not later, and everything continues once one of
# them works again.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
train_on_two_networks
cut_both() {
    cut_link b
    cut_link1 b
}
began=$SECONDS silent=$(grep -c 'node b does not answer at its address' "$(agent_log a)")
cut_both
log_must_say a 60 'node b of term [0-9]+ is lost'
# 1.5 s of silence and 2 s in which it may come back, as with one address; the rest is this machine's.
[ $((SECONDS - began)) -le 8 ] || die "the loss was noticed after $((SECONDS - began)) s only"
both_named() { [ "$(grep -c 'node b does not answer at its address' "$(agent_log a)")" = $((silent + 2)) ]; }
wait_for 60 both_named || die "the log does not name both addresses once"
before="$(commits a) $(commits b)"
sleep 2
[ "$(commits a) $(commits b)" = "$before" ] || die "commits though a node is away"
heal_link1 b
log_must_say a 60 'node b of term [0-9]+ is back'
more_commits a 3 60 || die "no commits after it"
more_commits b 3 60 || die "no commits on b after it"
restores_all
