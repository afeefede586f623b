#!/usr/bin/env bash
# Copies of versions that are not small are spread over the time between them, and the status says at which rate they
# go; each version commits before the next one. Trace and status say what copies cost a step. The last one, after which
# no step follows, is not throttled.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=20
settings=",\"trace_dir\":\"$work/traces\""
begin 2
run_on a "0" --steps 100000 --step-ms 40 --count 3000000 --lockstep
run_on b "1" --steps 100000 --step-ms 40 --count 3000000 --lockstep
is_paced() { # NODE: its copies have a rate
    ask "$1" --json status | python3 -c '
import json, sys
sys.exit(json.load(sys.stdin)["pacing"]["copies_bytes_per_second"] < 1e6)' 2>/dev/null
}
says_why() { ask a status | grep -qE '^pacing, copies [^(]*/s \([0-9.]+ [KM]iB left, waiting for (its turn|a pause of the network|the end of steps that are measured without it)\), drain '; }
wait_for 60 is_paced a || die "no rate: $(ask a status)"
wait_for 60 says_why || die "the status does not say for what copies wait: $(ask a status)"
shows() { ask a status | grep -qE '^pacing, copies .*/s.*, drain .*; step inflation '; }
wait_for 60 shows || die "the status does not show it: $(ask a status)"
traced() { grep -qs '"name":"step inflation"' "$work/traces/$job.a.trace.json"; }
wait_for 120 traced || die "the trace does not have what copies cost a step: $(ask a status)"
kill_trainers
before=$(commits a) from=$(newest_committed b)
begin 2
run_on a "0" --steps $((from + 140)) --step-ms 80 --count 3000000 --lockstep
run_on b "1" --steps $((from + 140)) --step-ms 80 --count 3000000 --lockstep
all_end
wait_for 60 has_commits a $((before + 6)) || die "only $(($(commits a) - before)) commits of 7"
