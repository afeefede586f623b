#!/usr/bin/env bash
# Storage hangs on both nodes, and one node gives up its part of a drain earlier than the other: the other node starts
# no further drain while its own still hangs, and both the ranks and `tierckpt status` report the hang.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=4
train=(--steps 100000 --step-ms 20 --lockstep)
begin 2
settings=',"storage_timeout_ms":6000'
run_on a 0 "${train[@]}"
settings=',"storage_timeout_ms":2000'
run_on b 1 "${train[@]}"
log_must_say a 60 'is published'
published() { grep -c 'is published' "$(agent_log a)"; }
publishes() { [ "$(published)" -gt "$before" ]; }
hung() { grep -c "does not answer: a drain has made no progress for $2 ms" "$(agent_log "$1")"; }
hung_in() { awk '/draining version/ { drain = $NF } /a drain has made no progress for/ { hung = drain } END { print hung }' "$(agent_log "$1")"; }
both_hang() { [ "$(hung a 6000)" -gt "$of_a" ] && [ "$(hung b 2000)" -gt "$of_b" ]; }
# The assertion: if a began a further drain while its own hangs, it would be found to hang in a later one than b.
in_the_same() { [ "$(hung_in a)" = "$(hung_in b)" ]; }
# If a node has already written its part of the drain when storage begins to hang, only the other one hangs in it, and
# the first perhaps in the next one: try again.
for attempt in 1 2 3 4 5; do
    of_a=$(hung a 6000) of_b=$(hung b 2000)
    fault "no shard can be written"
    moment
    lie 1000 HANG shard- "" write,sync 60000 # nothing that a publish does
    ! wait_for 20 both_hang || ! in_the_same || break
    [ "$attempt" -lt 5 ] || die "the nodes do not hang in the same drain: a hangs in $(hung_in a), b in $(hung_in b)"
    before=$(published)
    lie 0
    wait_for 60 publishes || die "nothing is published though storage answers: $(tail -5 "$(agent_log a)")"
done
since_published() { awk '/is published/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' "$(agent_log a)"; }
! since_published | grep -E 'drain of version [0-9.]+ failed' || die "a drain failed for another reason"
! timeout 20 "$bin/tierckpt" --config "$work/run/test/a/config.json" status >"$work/said" || die "status is good"
grep -q "storage has been failing since .*$work/save/test does not answer" "$work/said" || die "status does not say it: $(cat "$work/said")"
before=$(published)
lie 0
wait_for 60 publishes || die "nothing is published though storage answers: $(tail -5 "$(agent_log a)")"
