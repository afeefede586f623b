#!/usr/bin/env bash
# Saves, restores, launches, commands and killed peers, many times (ROUNDS=n): at the end the agent has no more
# descriptors, threads, segments or memory than after a warm-up.
. "$(dirname "$0")/lib.sh" "$1"
rounds=${ROUNDS:-12} warm=4
mem_interval=1 storage_interval=5
settings=',"max_ckpt_num":2'
count() { ls "/proc/$agent/$1" | wc -l; }
rss_kib() { awk '/^RssAnon/ { print $2 }' "/proc/$agent/status"; }
segments() { ask a --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["memory"]["segments"])'; }
steps=0 agent=""
for round in $(seq "$rounds"); do
    begin 2
    steps=$((steps + 20))
    run_on a "0" --steps $steps --count 4096 --wait-commit
    run_on b "1" --steps $steps --count 4096 --wait-commit
    all_end
    [ "$round" = 1 ] || [ "$(restored_step 0)" = $((steps - 20)) ] || die "round $round restored $(restored_step 0)"
    [ $((round % 3)) != 0 ] || kill -9 "$(agent_pid b)"
    for op in status ls plan verify; do ask a $op >/dev/null 2>&1; done
    agent=${agent:-$(agent_pid a)}
    same_agent a "$agent" || die "round $round: the agent was restarted"
    if [ "$round" = $warm ]; then
        fds=$(count fd) threads=$(count task) kib=$(rss_kib) held=$(segments)
    fi
done
calm() { same_agent a "$agent" && [ "$(count fd)" -le $((fds + 2)) ] && [ "$(count task)" -le $((threads + 1)) ]; }
wait_for 60 calm || die "$fds descriptors and $threads threads after round $warm, $(count fd) and $(count task) now: $(ls -l "/proc/$agent/fd" | tail -40)"
[ "$(segments)" = "$held" ] || die "$held segments after round $warm, $(segments) now"
grown=$(($(rss_kib) - kib))
echo "after $rounds rounds: $(count fd) descriptors ($fds after $warm), $(count task) threads ($threads), $(rss_kib) KiB ($kib)"
sanitized || [ $grown -le $((4096 + 256 * (rounds - warm))) ] || die "$grown KiB more than after round $warm"
