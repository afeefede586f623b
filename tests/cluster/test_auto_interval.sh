#!/usr/bin/env bash
# Intervals that are "auto": they begin as the defaults, follow what saves, copies and drains cost, are the same on all
# nodes, and survive a restart of the trainers; a longest time is kept; and tune --why explains them.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval='"auto:1s"' storage_interval='"auto"'
in_force() { # NODE KEY
    ask "$1" --json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["training"][sys.argv[1]])' "$2"
}
chosen() { logged a 'save_storage_interval is "auto": by what saves cost, it is [0-9]+ steps from step'; }
are_the_same() { [ "$(in_force a "$1")" = "$(in_force b "$1")" ] && [ "$(in_force a "$1")" != "$2" ]; }
begin 2
run_on a 0 --steps 100000 --step-ms 10
run_on b 1 --steps 100000 --step-ms 10
wait_for 60 has_commits a 5 || die "no commits: $(tail -3 "$(agent_log a)")"
wait_for 60 chosen || die "no interval is chosen: $(ask a --json status)"
wait_for 60 are_the_same save_storage_steps 100 || die "storage: $(in_force a save_storage_steps) and $(in_force b save_storage_steps)"
wait_for 60 are_the_same save_mem_steps 10 || die "memory: $(in_force a save_mem_steps) and $(in_force b save_mem_steps)"
[ "$(in_force a save_mem_steps)" -le 100 ] || die "1 s are at most 100 steps of 10 ms: $(in_force a save_mem_steps)"
more_commits a 5 60 || die "no commits at the chosen intervals"
published() { [ "$(grep -c 'is published' "$(agent_log a)")" -ge "$1" ]; }
wait_for 60 published 2 || die "nothing is published at the chosen interval"
[ "$(ask a --json config | python3 -c 'import json, sys; print(json.load(sys.stdin)["save_mem_interval"])')" = auto:1s ] ||
    die "the configuration says otherwise: $(ask a --json config)"
ask a tune --why >"$work/why" || die "tune --why: $(cat "$work/why")"
for line in 'Measured on this node' 'The fastest save had its copies' 'Counted in .* of 2 nodes: starts with the same nodes 0,' 'copies 1, its best' 'copies 2, its best'; do
    grep -q "$line" "$work/why" || die "tune --why does not say '$line': $(cat "$work/why")"
done
# A restart keeps the interval, and some seconds later another one is chosen. Restarts are repeated until the status has
# been read before that choice.
choices() { grep -c 'save_mem_interval is "auto": by what saves cost' "$(agent_log a)"; }
restarts=0 in_time=""
while [ -z "$in_time" ]; do
    [ $((restarts += 1)) -le 10 ] || die "in ten restarts the status was never read before another interval was chosen"
    kill_trainers
    before=$(in_force a save_mem_steps) chosen=$(choices)
    begin 2
    run_on a 0 --steps 100000 --step-ms 10
    run_on b 1 --steps 100000 --step-ms 10
    wait_for 60 said 0 '^RESTORED' || die "nothing is restored: $(out 0 | tail -3)"
    after=$(in_force a save_mem_steps)
    [ "$(choices)" != "$chosen" ] || in_time=yes
done
[ "$after" = "$before" ] || die "the restart has lost the interval: $before, $after"
more_commits a 5 60 || die "no commits after a restart"
ask a tune --why | grep -q "of 2 nodes: starts with the same nodes $restarts," || die "the restart is not counted: $(ask a tune --why)"
ask a config --set save_mem_interval=7 >/dev/null || die "it cannot be set"
fixed() { [ "$(in_force a save_mem_steps)" = 7 ] && [ "$(in_force b save_mem_steps)" = 7 ]; }
wait_for 60 fixed || die "it is set, but not in force: $(in_force a save_mem_steps)"
