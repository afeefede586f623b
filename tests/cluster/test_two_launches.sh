#!/usr/bin/env bash
# Two launches of the same job at the same time: only one of them trains, in one term, the other one learns that its
# term is over, and a launch after them restores the newest committed version.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --launch 1 --steps 12 --wait-commit
run_on b "1" --launch 1 --steps 12 --wait-commit
all_end
newest=$(newest_commit)
# No claim is outstanding: each launch trains, or was told that its term is over.
all_past_attach() {
    local l rank
    for l in $one $launch; do
        for rank in 0 1; do grep -qE '^(RESTORED|FRESH|EXIT)' "$work/out.$l.$rank" || return 1; done
    done
}
for round in 1 2 3; do
    begin 2
    one=$launch
    run_on a "0" --launch $((2 * round)) --steps 100000 --step-ms 20
    run_on b "1" --launch $((2 * round)) --steps 100000 --step-ms 20
    both=("${trainers[@]}")
    moment 600
    begin 2
    run_on a "0" --launch $((2 * round + 1)) --steps 100000 --step-ms 20
    run_on b "1" --launch $((2 * round + 1)) --steps 100000 --step-ms 20
    both+=("${trainers[@]}")
    fault "two launches at once"
    wait_for 90 all_past_attach ||
        die "round $round: a launch neither restores nor ends: $(tail -n 2 "$work"/out."$one".* "$work"/out."$launch".*)"
    more_commits b 5 90 || die "round $round: neither launch commits: $(tail -n 2 "$work"/out."$one".* "$work"/out."$launch".*)"
    newest_term=$(sed -nE 's/.*version ([0-9]+)\.[0-9]+ is committed$/\1/p' "$(agent_log b)" | tail -1)
    more_commits b 5 60 || die "round $round: commits do not go on"
    [ "$(sed -nE 's/.*version ([0-9]+)\.[0-9]+ is committed$/\1/p' "$(agent_log b)" | tail -5 | sort -u)" = "$newest_term" ] ||
        die "round $round: two terms commit in turn"
    for l in $one $launch; do
        for rank in 0 1; do
            ! grep -q '^WRONG' "$work/out.$l.$rank" || die "round $round: $(grep '^WRONG' "$work/out.$l.$rank")"
        done
    done
    trainers=("${both[@]}")
    kill_trainers
done
newest=$(committed_steps b | tail -1)
begin 2
run_on a "0" --launch 9 --steps $((newest + 20)) --done
run_on b "1" --launch 9 --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" = "$(restored_step 1)" ] || die "ranks restored $(restored_step 0) and $(restored_step 1)"
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed last"
