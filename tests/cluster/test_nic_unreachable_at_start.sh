#!/usr/bin/env bash
# The first address of a node cannot be reached from the start, or its interface has no carrier when its agent starts: the
# nodes attach at the second one, and train.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/nics.sh"
make_nets a b
ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP 2>/dev/null || skip "no iptables here"
fault "link silent"
trains() {
    begin 2
    run_on a "0" --steps "$1" --done
    run_on b "1" --steps "$1" --done
    all_end
}
trains 20
logged a 'node b is up at 10\.77\.1\.2:' || logged b 'node a is up at 10\.77\.1\.1:' || die "the second address is not used"
! logged b 'node a is up at 10\.77\.0\.1:' || die "an address that does not answer is used"

job=second
ip netns exec "tck$$-b" iptables -F
cut_link b
trains 20
logged b 'network interface net0 has no carrier: this agent does without it until it is started again' || die "b does not say which interface it does without"
! grep -E 'session with node b at 10\.77\.0\.2' "$(agent_log a)" || die "a was told an address that b does not have"
