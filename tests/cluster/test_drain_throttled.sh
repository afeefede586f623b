#!/usr/bin/env bash
# A drain that is throttled for longer than storage_timeout_ms is no sign of storage that hangs: it is published.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
# In memory, because a disk that other programs use may block for longer than storage_timeout_ms.
mount -t tmpfs -o size=2g tmpfs "$work/save" 2>/dev/null || skip "no tmpfs can be mounted here"
at_end() { umount -l "$work/save"; }
mem_interval=50 storage_interval=250
settings=',"storage_timeout_ms":500,"max_ckpt_num":2'
begin 2
run_on a "0" --steps 1000 --step-ms 40 --count 5000000 --lockstep
run_on b "1" --steps 1000 --step-ms 40 --count 5000000 --lockstep
published() { [ "$(grep -c 'is published' "$(agent_log a)")" -ge "$1" ]; }
drain_rate() { # of a
    ask a --json status | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["pacing"]["drain_bytes_per_second"]))'
}
is_slow() { local rate; rate=$(drain_rate) && [ "$rate" -gt 0 ] && [ "$rate" -lt 16000000 ]; }
wait_for 180 published 1 || die "nothing is published"
wait_for 60 is_slow || die "the drain is not throttled: $(drain_rate) B/s"
wait_for 300 published 3 || die "versions are not published: $(grep -E 'drain|storage' "$(agent_log a)" | tail -5)"
! grep -hE 'save/test does not answer|storage hangs' "$(agent_log a)" "$(agent_log b)" || die "storage counts as hanging"
