#!/usr/bin/env bash
# A node that holds another one's shard has memory for two versions of it, and for as many as there are slots only of its
# own: by what the kernel has allocated, also while every step is saved, after a restart with the ranks exchanged, and
# after the agent was killed. That is no shortage of memory, so neither status nor log speaks of one.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=1
# memory_of NODE: the tenths of versions for which its segments have memory, and all their bytes. A file has the slots of
# one shard.
memory_of() {
    python3 - "$(agent_pid "$1")" "$slots" <<'PY'
import os, sys
fds, slots, seen = f"/proc/{sys.argv[1]}/fd", int(sys.argv[2]), {}
for name in os.listdir(fds):
    path = os.path.join(fds, name)
    try:
        if os.readlink(path) == "/memfd:tierckpt (deleted)":
            found = os.stat(path)
            seen[found.st_ino] = found
    except OSError:
        pass # closed meanwhile
large = [found for found in seen.values() if found.st_size >= 1 << 20] # the small ones are the headers
print(round(sum(10 * found.st_blocks * 512 / (found.st_size / slots) for found in large)),
      sum(found.st_blocks * 512 for found in large))
PY
}
has_versions() { [[ "$(memory_of "$1")" == "$2 "* ]]; }
slots_shown() {
    local at
    at=$(ask "$1" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["metrics"]["at"])')
    curl -sf --max-time 20 "http://$at/metrics" | awk '/^tierckpt_slots{/ { sum += $2 } END { print sum }'
}
shows_slots() { [ "$(slots_shown "$1")" = "$2" ]; } # what the metrics say is up to a second old
# both_have VERSIONS WHEN
both_have() {
    local node used bytes
    for node in a b; do
        wait_for 60 has_versions $node "$1"0 || die "$2, node $node has memory for $(memory_of $node) (tenths of versions, bytes), not for $1 versions"
        bytes=$(memory_of $node | cut -d' ' -f2)
        used=$(ask $node --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["memory"]["used_bytes"])')
        [ "$used" -ge "$bytes" ] && [ "$used" -lt $((bytes + (1 << 20))) ] || die "$2, status says that $used bytes are used on node $node, not $bytes"
        wait_for 60 shows_slots $node "$1" || die "$2, the metrics of node $node show $(slots_shown $node) slots"
        ! ask $node status | grep 'given back' || die "$2, node $node speaks of a shortage"
    done
}
train() { # NODE-OF-0 NODE-OF-1 OPTIONS...
    local first=$1 second=$2
    shift 2
    begin 2
    run_on "$first" 0 --count $((1 << 16)) --steps 100000 --step-ms 20 --lockstep "$@" # images of 1 MiB, in a memfd
    run_on "$second" 1 --count $((1 << 16)) --steps 100000 --step-ms 20 --lockstep "$@"
    wait_for 60 said 0 '^(RESTORED|FRESH)' || die "no start: $(out 0 | tail -3)"
    more_commits "$first" 3 60 || die "nothing is committed: $(out 0 | tail -3)"
}
for slots in 3 2; do
    job=with$slots # its own agents
    # A machine that is short of memory for other reasons must not make the agents give slots back.
    settings=',"slots":'$slots',"metrics_listen":":0","memory_reserve_bytes":"64MiB"'
    train a b
    for _ in 1 2 3; do
        both_have $((slots + 2)) "while every step is saved in $slots slots"
        more_commits a 5 60 || die "commits do not go on"
    done
    kill_trainers
    newest=$(newest_committed a)
    train b a
    [ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
    more_commits a 5 60 || die "commits do not go on with the ranks exchanged"
    both_have $((slots + 2)) "with the ranks exchanged"
    moment
    kill -9 "$(agent_pid b)"
    more_commits a 5 60 || die "commits do not go on after an agent was killed"
    both_have $((slots + 2)) "after an agent was killed"
    ! grep 'short' "$(agent_log a)" "$(agent_log b)" || die "a log speaks of a shortage"
    kill_trainers
    [ $slots = 3 ] || continue
    # The same while memory is not watched.
    settings="$settings"',"memory_pressure":"off"'
    newest=$(newest_committed a)
    train a b
    [ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
    more_commits a 5 60 || die "commits do not go on with the ranks where they were"
    both_have $((slots + 2)) "while memory is not watched"
    kill_trainers
done
