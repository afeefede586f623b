#!/usr/bin/env bash
# A version that was damaged between device and slot is refused, and the next one commits. A trainer whose records are
# on a device reports the digests that were computed there, and the bytes in the slot have other ones.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=10
begin 2
run_on a "0" --steps 45 --step-ms 20 --lockstep --spoil-seal 20 --done
run_on b "1" --steps 45 --step-ms 20 --lockstep --done
all_end
for step in 20 40; do
    log_must_say a 60 "version 1\.$step: slot [0-9]* does not match the digests that its trainer's device computed"
    logged a "version 1\.$step is committed" && die "step $step is committed"
done
for step in 10 30; do
    log_must_say a 60 "version 1\.$step is committed"
done
exit 0
