#!/usr/bin/env bash
# A restore of an older step completes although an agent is killed with -9 during it. The restore begins a new term,
# and the restarted agent gets the request again. It does not matter how long the ranks take from their registration to
# their request: no other step is restored in this term.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_attach.sh"
excused="an older step is asked for"
storage_interval=4
first=4
goes_back() { # WHERE
    local r
    for r in 0 1; do
        [ "$(restored_step $r | tr '\n' ' ')" = "$first 4 " ] || die "$1: rank $r restored $(restored_step $r)"
        [ "$(out $r | grep '^COMMITTED' | tail -1)" = "COMMITTED 8" ] || die "$1: no commit of 8: $(out $r | tail -3)"
    done
    first=8
}
begin 2
run_on a 0 --twins 2 --lockstep --steps 4 --wait-commit --wait-drained
run_on b 1 --twins 2 --lockstep --steps 4 --wait-commit --wait-drained
all_end
# As in an attach, after the six meetings of that one, three of the first restore and one about the second:
# HELLO (11), CLAIM (12), JOIN (13), before REGISTER (14, 15), after it (16), the version is known (17).
for how in before in; do
    for meetings in 12 15 16; do
        cut_off $meetings a 0 $how --steps 12 --back-to 4
        goes_back "$case"
    done
    cut_off 12 b 1 $how --steps 12 --back-to 4
    goes_back "$case"
    cut_off 16 b 1 $how --steps 12 --back-to 4
    goes_back "$case"
done
terms() { grep -c 'claimed term' "$(agent_log a)"; }
before=$(terms)
begin 2
run_on a 0 --twins 2 --lockstep --steps 12 --wait-commit --wait-drained --hold-meet 16 --back-to 4
run_on b 1 --twins 2 --lockstep --steps 12 --wait-commit --wait-drained --hold-meet 16 --back-to 4
wait_for 60 said 0 '^HELD' || die "rank 0 is not held: $(out 0 | tail -3)"
sleep 3 # longer than what the agents restore unasked waits for
touch "$work/oob.$launch/go"
all_end
goes_back "slow ranks"
[ "$(terms)" = $((before + 2)) ] || die "slow ranks: $(($(terms) - before)) terms were claimed, not 2"
