#!/usr/bin/env bash
# A job that ends before its first commit starts from scratch at its next start, whether a node was lost or not, and
# commits.
. "$(dirname "$0")/lib.sh" "$1"
[ "$mem_interval" = 2 ] || die "the versions are called otherwise"
first_saves() { grep -cE 'version [0-9]+\.2 is protected' "$(agent_log a)" 2>/dev/null || true; }
has_saved() { [ "$(first_saves)" -gt "$1" ]; }
# one_saves NODE: rank 0 saves, and rank 1, there, has not come to it.
one_saves() {
    local had
    had=$(first_saves)
    begin 2
    run_on a "0" --steps 100000 --step-ms 5
    run_on "$1" "1" --steps 100000 --step-ms 100000
    wait_for 60 has_saved "${had:-0}" || die "rank 0 does not save: $(tail -3 "$(agent_log a)")"
}
one_saves b
kill_trainers
one_saves b
must_say 0 '^FRESH'
kill_trainers
kill_node b
one_saves c
must_say 0 '^FRESH'
kill_trainers
begin 2
run_on a "0" --steps 6 --step-ms 5 --wait-commit --done
run_on c "1" --steps 6 --step-ms 5 --wait-commit --done
all_end
must_say 0 '^FRESH'
must_say 1 '^FRESH'
must_say 0 '^COMMITTED 6'
