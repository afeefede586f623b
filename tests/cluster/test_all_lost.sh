#!/usr/bin/env bash
# All nodes lost: the newest published version is restored from storage.
. "$(dirname "$0")/lib.sh" "$1"
storage_interval=4
settings=',"max_ckpt_num":2'
begin 2
run_on a "0" --twins 2 --steps 16 --wait-commit --wait-drained
run_on b "1" --twins 2 --steps 16 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 16$'
only_two() { ask a --json ls | python3 -c 'import json, sys; sys.exit(len(json.load(sys.stdin)["published"]) > 2)'; }
wait_for 60 only_two || die "max_ckpt_num is 2: $(ask a ls)"
ask a verify published >/dev/null || die "verify: $(ask a verify published)"
moment
kill_node a
moment
kill_node b
begin 2
run_on c "0" --twins 2 --steps 20 --done
run_on d "1" --twins 2 --steps 20 --done
all_end
[ "$(restored_step 0)" = 16 ] || die "restored $(restored_step 0) instead of 16"
[ "$(restored_from 0 storage)" -gt 0 ] || die "not from storage: $(out 0 | grep RESTORED)"
for rank in 0 1; do # a shard that is asked for again has come from where it came from first
    [ "$(restored_from $rank local)" = 0 ] || die "rank $rank had nothing here: $(out $rank | grep RESTORED)"
done
