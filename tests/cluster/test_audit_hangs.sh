#!/usr/bin/env bash
# Lines of the audit file, which is on storage, hang for longer than a node may be silent: agents go on answering, no node
# counts as silent, commits to memory continue, and drains do when the file answers again.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=4
settings=',"storage_timeout_ms":2000,"slots":2,"peer_timeout_ms":10000'
begin 2
run_on a 0 --steps 100000 --step-ms 20 --lockstep
run_on b 1 --steps 100000 --step-ms 20 --lockstep
log_must_say a 60 'is published'
fault "half of what is written to the audit file hangs"
# At random, so that an intent is written at once and its result hangs.
lie 500 HANG audit "" write 15000
until=$((SECONDS + 40))
while [ $SECONDS -lt $until ]; do
    more_commits a 20 120 || die "no commits while the audit file hangs: $(tail -3 "$(agent_log a)")"
done
grep -hE 'has been silent|does not answer: the agent|agent .* does not answer$' "$(agent_log a)" "$(agent_log b)" &&
    die "an agent waits for the audit file"
lie 0
published() { grep -c 'is published' "$(agent_log a)"; }
before=$(published)
drains() { [ "$(published)" -gt "$before" ]; }
wait_for 60 drains || die "drains do not go on: $(tail -3 "$(agent_log a)")"
kill_trainers
