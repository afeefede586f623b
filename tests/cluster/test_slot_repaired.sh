#!/usr/bin/env bash
# Bytes flipped in one node's memory are found without a request, and the copies are fetched again from the other node.
# After that, the loss of the other node costs nothing. `tierckpt verify` has the same effect at once.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
needs_root
begin 2
settings=',"scrub_interval_s":1'
run_on a "0" --steps 20 --wait-commit
settings=',"scrub_interval_s":0' # this one is left to the command
run_on b "1" --steps 20 --wait-commit
all_end

# scrub NODE KEY: a number of the node's status
scrub() { ask "$1" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["scrub"][sys.argv[1]])' "$2"; }
# repaired NODE COUNT: as many copies were lost and fetched again, and none is missing.
repaired() { [ "$(scrub "$1" copies_repaired)" -ge "$2" ] && [ "$(scrub "$1" copies_missing)" = 0 ]; }

count=$(flip a)
[ "$count" -gt 1 ] || skip "no memfd of the agent can be written here"
wait_for 60 repaired a "$count" || die "$count copies were damaged: $(ask a --json status)"
[ "$(scrub a slots_bad)" -ge "$count" ] || die "not all damage is counted: $(ask a --json status)"
logged a 'damaged and was dropped' || die "the log does not tell of the damage"
logged a 'was fetched from a peer b' || die "the log does not tell where the new copy is from"
ask a verify memory >"$work/verify" || die "after repairing: $(cat "$work/verify")"

# The same by the command: found at once, repaired after it.
count=$(flip b)
ask b verify memory >"$work/verify"
[ $? = 1 ] || die "verify does not end with 1: $(cat "$work/verify")"
[ "$(grep -c '^BAD: ' "$work/verify")" -ge "$count" ] || die "verify does not name each: $(cat "$work/verify")"
wait_for 60 repaired b "$count" || die "$count copies were damaged: $(ask b --json status)"
ask b verify memory >"$work/verify" || die "after repairing: $(cat "$work/verify")"

# Both copies are good again: either node alone is enough.
kill_node b
begin 2
run_on a "0" --steps 24 --wait-commit --done
run_on c "1" --steps 24 --wait-commit --done
all_end
[ "$(restored_step 0)" = 20 ] || die "restored $(restored_step 0) instead of 20"
