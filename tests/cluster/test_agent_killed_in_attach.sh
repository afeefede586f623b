#!/usr/bin/env bash
# A launch survives an agent that is killed with -9 while its trainer is joining a term. It dies before and during each
# of the trainer's requests (CLAIM, JOIN, REGISTER); the trainer repeats the request to the next agent by itself, and
# the launch continues as if nothing had happened.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/kill_attach.sh"
storage_interval=6
steps=0 newest=0
goes_on() { # as cut_off
    local r
    steps=$((steps + 6))
    cut_off "$@" --steps $steps
    for r in 0 1; do
        [ "$launch" = 1 ] || [ "$(restored_step $r)" = "$newest" ] ||
            die "$case: rank $r restored $(restored_step $r), but $newest was committed"
    done
    newest=$(newest_commit)
    [ "$newest" = $steps ] || die "$case: step $newest is the newest committed, not $steps: $(tail -n 3 "$work"/out."$launch".*)"
}
# Ranks meet after HELLO (1), CLAIM (2), JOIN (3), and before REGISTER twice (4, 5).
for how in before in; do
    goes_on 1 a 0 $how
    for meetings in 2 5; do
        goes_on $meetings a 0 $how
        goes_on $meetings b 1 $how
    done
done
goes_on 4 b 1 before
