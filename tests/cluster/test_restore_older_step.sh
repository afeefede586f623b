#!/usr/bin/env bash
# A published older step can be restored at any time, after a restore and after saves of the same run. A new line of
# history begins with it, which the next launch continues.
. "$(dirname "$0")/lib.sh" "$1"
excused="an older step is asked for"
storage_interval=4
options=(--twins 2 --step-ms 300 --wait-commit) # steps that take longer than copies do: else saves find no slot yet
begin 2
run_on a "0" "${options[@]}" --steps 4 --wait-drained
run_on b "1" "${options[@]}" --steps 4 --wait-drained
all_end
begin 2
run_on a "0" "${options[@]}" --steps 10 --back-to 4
run_on b "1" "${options[@]}" --steps 10 --back-to 4
all_end
for rank in 0 1; do
    [ "$(restored_step $rank | tr '\n' ' ')" = "4 4 " ] || die "rank $rank restored $(restored_step $rank)"
    [ "$(out $rank | grep '^COMMITTED' | tail -1)" = "COMMITTED 8" ] || die "the new line has no commit: $(out $rank)"
done
begin 2
run_on a "0" "${options[@]}" --steps 8 --done
run_on b "1" "${options[@]}" --steps 8 --done
all_end
for rank in 0 1; do must_say $rank "^RESTORED .*step=8 "; done
