#!/usr/bin/env bash
# A restore into another layout than the saved one reports that and changes nothing. A run that starts from scratch
# nevertheless commits, and then the memory of the old layout is freed. If the memory cap is too small, every rank gets
# the bytes wanted and allowed.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 8 --wait-commit
run_on b "1" --steps 8 --wait-commit
all_end
begin 2
run_on a "0" --count 70000 --steps 16
run_on b "1" --count 70000 --steps 16
none_ends_well "a restore into another layout went well: $(out 0)"
for rank in 0 1; do must_say $rank '^ERROR restore: .*layout'; done
begin 2
run_on a "0" --count 70000 --steps 20 --wait-commit --no-restore
run_on b "1" --count 70000 --steps 20 --wait-commit --no-restore
all_end
must_say 0 '^COMMITTED 20$'
two_segments() { ask a status --json | python3 -c 'import json,sys; sys.exit(json.load(sys.stdin)["memory"]["segments"] != 2)'; }
begin 2
run_on a "0" --count 70000 --steps 24 --wait-commit
run_on b "1" --count 70000 --steps 24 --wait-commit
wait_for 60 two_segments || die "old segments stay: $(ask a status)"
all_end
[ "$(restored_step 0)" = 20 ] || die "restored $(restored_step 0) instead of 20"

memory_cap=1MiB
begin 2
run_on c "0" --steps 4
run_on d "1" --steps 4
none_ends_well "registered beyond the cap"
for rank in 0 1; do must_say $rank '^ERROR register: .*[0-9]{7} bytes wanted, .*1048576 allowed'; done
