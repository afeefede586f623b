#!/usr/bin/env bash
# Commits continue although every step is saved, in two slots, over links that can carry one version in a hundred
# steps. Without a common choice each node would soon be copying another version, and none would ever be complete. The
# agents say what to change.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"slots":2,"block_time_ms":500,"heartbeat_ms":200,"peer_timeout_ms":3000'
mem_interval=1
nodes="a b c"
make_net $nodes
for node in $nodes; do
    tc -n "tck$$-$node" qdisc add dev net0 root tbf rate 8mbit burst 64kb latency 500ms || skip "no tbf here"
done
fault "links of 8 Mbit/s, and every step is saved"
begin 3
rank=0
for node in $nodes; do
    run_on "$node" "$rank" --steps 1000000 --step-ms 5 --lockstep
    rank=$((rank + 1))
done
log_must_say a 60 'saves come faster than they can be copied: .* Raise save_mem_interval, or set slots to 3'
log_must_say b 60 'refused: saves come faster than they can be copied'
warned() { ask b status | grep -E '^WARNING: saves come faster .* the next one is at step [0-9]+ or later' >/dev/null; }
wait_for 60 warned || die "the status does not tell of it: $(ask b status)"
held() { [ "$(ask b --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["not_before"])')" -gt 0 ]; }
wait_for 60 held || die "the status does not tell of it: $(ask b --json status)"
more_commits a 4 120 || die "versions are no longer committed: $(commits a) commits"
