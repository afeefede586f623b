#!/usr/bin/env bash
# An agent is killed in the middle of an upload, and the coordinator's node is lost between the last file of a version
# and its manifest. No version is lost, none is visible by half, and nothing stays in the bucket of what was interrupted.
# test_jobs.py holds the second parts of the first version's shards, and the second manifest.
. "$(dirname "$0")/jobs.sh" "$1"
train=("${large[@]}" --steps 100000 --step-ms 100 --lockstep)
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
uploading() { bucket uploads | grep -q .; }
wait_for 60 uploading || die "no upload: $(bucket list; tail -5 "$(agent_log a)")"
kill -9 "$(agent_pid a)"
! bucket_has manifest.json || die "a version is published by half: $(bucket list)"
more_commits b 3 90 || die "no commits after the agent's death: $(tail -5 "$(agent_log b)")"

# without_manifest: versions that have both shards, and no manifest.
without_manifest() {
    bucket list | sed -nE 's,.*/(v[0-9]+\.t[0-9]+)/(.*),\1 \2,p' |
        awk '$2 == "manifest.json" { named[$1] } $2 ~ /^shard/ { n[$1]++ } END { for (v in n) if (n[v] == 2 && !(v in named)) print v }'
}
held() {
    local version
    bucket_has manifest.json || return 1
    version=$(without_manifest | sort | tail -1)
    [ -n "$version" ] && sleep 2 && without_manifest | grep -qx "$version" && half=$version
}
wait_for 120 held || die "no manifest is held: $(bucket list; tail -5 "$(agent_log a)")"
ask b ls >"$work/said" || die "ls: $(cat "$work/said")"
step=$((10#$(sed -E 's/v0*([0-9]+)\..*/\1/' <<<"$half")))
case " $(listed b) " in *" $step "*) die "step $step is listed without a manifest" ;; esac
all_whole b
committed=$(newest_committed b)
kill_node a
kill_trainers
begin 2
run_on c 0 "${train[@]}"
run_on b 1 "${train[@]}"
for rank in 0 1; do
    wait_for 90 said $rank '^RESTORED' || die "rank $rank does not restore: $(out $rank | tail -3)"
    [ "$(restored_step $rank)" -ge "$committed" ] || die "restored $(restored_step $rank), and $committed was committed"
done
more_published c 2 120
all_whole b
left() { bucket uploads | grep -E '\.t1/'; without_manifest | grep -E '\.t1$'; }
gone() { [ -z "$(left)" ]; }
wait_for 60 gone || die "left of the interrupted drains: $(left)"
kill_trainers
no_secret
