#!/usr/bin/env bash
# An agent that is killed at any of its system calls on files comes back, and nothing committed is lost. It commits,
# drains, publishes and prunes, and is killed repeatedly (SEED=n; ROUNDS=n, 0: at each call once; otherwise for a
# minute). The trainers continue; then the newest version is restored, to the bit, alternately from memory and, after
# the loss of both nodes, from storage.
. "$(dirname "$0")/lib.sh" "$1"
! sanitized || skip "a sanitized agent cannot be traced"
command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || skip "no strace here"
storage_interval=4
settings=',"max_ckpt_num":2,"version_timeout_ms":5000'
calls=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdirat,openat2,fallocate,io_uring_enter
steps=0 committed=0 published=0 kills=0 from=memory

# end_tracer PID: strace may wait for ever for the last thread of a process that was killed while it detaches.
end_tracer() {
    builtin kill -INT "$1" 2>/dev/null
    wait_for 5 is_over "$1" || builtin kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}
is_over() { ! builtin kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }

# train WHAT NODE STRACE-OPTIONS...: eight steps more, the agent of that node traced from the restore on.
train() {
    local what=$1 node=$2 r agent tracer floor=$committed
    shift 2
    [ $from = memory ] || floor=$published
    steps=$((steps + 8))
    begin 2
    for r in "a 0" "b 1"; do
        run_on "${r% *}" "${r#* }" --twins 2 --lockstep --steps $steps --step-ms 20 --wait-commit --wait-drained --hold-meet 9
    done
    for r in 0 1; do wait_for 60 said $r '^HELD' || die "$what: rank $r is not held: $(out $r | tail -3)"; done
    agent=$(agent_pid "$node")
    strace -f -p "$agent" -e signal=none "$@" 2>"$work/strace" &
    tracer=$!
    wait_for 60 grep -qE 'attached|not permitted' "$work/strace" || die "$what: strace does not attach: $(cat "$work/strace")"
    ! grep -q 'not permitted' "$work/strace" || skip "no strace of others' processes here"
    touch "$work/oob.$launch/go"
    all_end
    end_tracer $tracer
    if [ "$(agent_pid "$node")" != "$agent" ]; then
        fault "agent killed at $what"
        kills=$((kills + 1))
    fi
    for r in 0 1; do
        [ "$launch" = 1 ] || { [ -n "$(restored_step $r)" ] && [ "$(restored_step $r)" -ge "$floor" ]; } ||
            die "before $what: rank $r restored '$(restored_step $r)' from $from, but there was $floor"
    done
    [ "$(restored_step 0)" = "$(restored_step 1)" ] || die "before $what: $(restored_step 0) and $(restored_step 1) were restored"
    ask a verify published >"$work/verify" || die "$what: what is published is damaged: $(cat "$work/verify")"
    committed=$(newest_commit)
    r=$(sed -nE 's/^DRAINED ([0-9]+)$/\1/p' "$work"/out."$launch".* | sort -n | tail -1)
    published=${r:-$published}
    [ -n "$committed" ] || die "$what: nothing was committed: $(out 0 | tail -5)"
}
lose_both() {
    kill_node a
    kill_node b
    from=storage
    [ "$committed" = "$published" ] || excused="all nodes lost at once: newest published"
    committed=$published # what was not there is lost with them
}
# points NODE: what it called, as often as any one of its threads did, one "NODE CALL N" a line.
points() {
    awk -v node="$1" '$2 ~ /^[a-z0-9_]+\(/ { sub(/\(.*/, "", $2); n = ++count[$1 " " $2]; if (n > most[$2]) most[$2] = n }
        END { for (call in most) for (i = 1; i <= most[call]; i++) print node, call, i }' "$work/trace" | sort
}
train "nothing" a -o "$work/trace" -e "trace=$calls"
points a >"$work/points"
train "nothing" b -o "$work/trace" -e "trace=$calls"
points b >>"$work/points"
mapfile -t points < <(awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' "$work/points" | sort | cut -f 2)
[ ${#points[@]} -ge 40 ] || die "only ${#points[@]} calls were seen: $(cat "$work/points")"
rounds=${ROUNDS:-100000}
[ "$rounds" != 0 ] || rounds=${#points[@]}
done_rounds=0
for point in "${points[@]}"; do
    [ $done_rounds -lt "$rounds" ] || break
    [ -n "${ROUNDS:-}" ] || [ $SECONDS -lt 60 ] || [ $kills -eq 0 ] || break
    read -r node call at <<<"$point"
    train "$point" "$node" -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$at"
    done_rounds=$((done_rounds + 1))
    from=memory
    [ $((done_rounds % 3)) -ne 0 ] || lose_both
done
train "nothing" a -o /dev/null -e trace=none
echo "seed $seed: $done_rounds of ${#points[@]} calls, $kills kills"
[ $kills -gt 0 ] || die "no agent was killed: nothing was tested"
