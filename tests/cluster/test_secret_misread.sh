#!/usr/bin/env bash
# Storage returns another flipped bit each time that the job's secret is read: no agent starts with a wrong secret,
# with which no other agent would talk to it, and the trainers get the reason. When storage reads correctly again, they
# start.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=2
begin 1
run_on a 0 --steps 2 --wait-commit --wait-drained
all_end
kill_node a
lie 1000 FLIP /secret
fault "the secret is read with a wrong bit"
begin 1
run_on a 0 --steps 4
none_ends_well "an agent with a wrong secret"
must_say 0 "^ERROR attach: .*$work/save/test: secret file secret: two reads of it differ"
lie 0
begin 1
run_on a 0 --steps 4 --wait-commit
all_end
[ "$(restored_step 0)" = 2 ] || die "restored $(restored_step 0) instead of 2"
