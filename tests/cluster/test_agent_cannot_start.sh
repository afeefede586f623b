#!/usr/bin/env bash
# A trainer whose agent cannot start gets the reason, and can attach once the cause is repaired.
. "$(dirname "$0")/lib.sh" "$1"
rmdir "$work/save"
echo "in the way" >"$work/save"
begin 1
run_on a 0 --steps 3 --done
none_ends_well "the trainer attached without an agent"
must_say 0 "ERROR attach: .*the agent cannot start: save_dir $work/save.*agent.log"
rm "$work/save"
begin 1
run_on a 0 --steps 3 --done
all_end
