#!/usr/bin/env bash
# A job has to leave its nodes (`tierckpt drain --wait`, then SIGTERM to the agents, then SIGKILL to one that does not
# exit): it resumes on other machines from the version that the drain published. If only one node leaves, no step is
# lost.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 30 --wait-commit
run_on b "1" --steps 30 --wait-commit
all_end
fault "node b leaves in order"
ask a drain --wait >"$work/drained" || die "drain: $(cat "$work/drained")"
grep -q '30 is published' "$work/drained" || die "drain --wait does not say what is published: $(cat "$work/drained")"
moment
kill -TERM "$(agent_pid b)"
wait_for 60 no_agent b || die "the agent of node b does not leave"
begin 2
run_on a "0" --steps 40 --wait-commit
run_on c "1" --steps 40 --wait-commit
all_end
[ "$(restored_step 1)" = 30 ] || die "restored $(restored_step 1) instead of 30"
[ "$(restored_from 1 storage)" = 0 ] || die "storage was used though one node only left: $(out 1 | grep RESTORED)"
ask c drain --wait >"$work/drained" || die "drain: $(cat "$work/drained")"
for node in a c; do moment 300 && kill -TERM "$(agent_pid $node)"; done
for node in a c; do kill -9 "$(supervisor_pid $node)" "$(agent_pid $node)" 2>/dev/null; done # no grace at all
for node in a c; do kill_node $node; done
begin 2
run_on d "0" --steps 44 --done
run_on e "1" --steps 44 --done
all_end
for rank in 0 1; do [ "$(restored_step $rank)" = 40 ] || die "rank $rank restored $(restored_step $rank) instead of 40"; done
