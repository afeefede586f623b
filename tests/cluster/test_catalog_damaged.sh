#!/usr/bin/env bash
# The catalog is a hint: garbage in its files while the agent is down moves it aside, and the same version is restored.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0 1" --steps 1000 --step-ms 20 --wait-commit
wait_for 60 said 0 '^COMMITTED 8$' || die "no commit: $(out 0 | tail -3)"
moment
kill_trainers
catalog=$work/run/test/a/catalog
moment
kill -STOP "$(keeper_pid a)" # it would start the agent again before the catalog is damaged
old=$(agent_pid a)
kill -9 "$old"
for file in "$catalog"/MANIFEST-* "$catalog"/*.log "$catalog"/CURRENT; do
    head -c 4096 /dev/urandom >"$file"
done
kill -CONT "$(keeper_pid a)"
begin 2
run_on a "0 1" --steps 60 --wait-commit --done
all_end
newest=$(launch=1 newest_commit)
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from local memory: $(out 0 | grep RESTORED)"
logged a 'catalog .* does not open' || die "the log does not say it"
ls -d "$catalog"?* >/dev/null || die "nothing was moved aside: $(ls "$work/run/test/a")"
