#!/usr/bin/env bash
# A node is lost with everything on it and replaced: its twins' shards come from the other node, private ones from
# copies on peers. The ranks are on other nodes than before.
. "$(dirname "$0")/lib.sh" "$1"
begin 4
run_on a "0 1" --twins 4 --steps 1000 --step-ms 20 --wait-commit
run_on b "2 3" --twins 4 --steps 1000 --step-ms 20 --wait-commit
wait_for 60 said 3 '^COMMITTED ([89]|[1-9][0-9]+)$' || die "no commit: $(out 3 | tail -3)"
moment
kill_node a
kill_trainers
newest=$(grep -h '^COMMITTED' "$work"/out.1.* | awk '{ print $2 }' | sort -n | tail -1)
begin 4
run_on b "0 1" --twins 4 --steps 60 --wait-commit --done
run_on c "2 3" --twins 4 --steps 60 --wait-commit --done
all_end
for rank in 0 1 2 3; do
    [ "$(restored_step $rank)" -ge "$newest" ] || die "rank $rank restored $(restored_step $rank), but $newest was committed"
done
[ "$(restored_from 2 storage)" = 0 ] || die "storage was used: $(out 2 | grep RESTORED)"
twin_used c 2 3 || die "no twins' shard came from a twin: $(grep -h RESTORED "$work/out.$launch".[23])"
