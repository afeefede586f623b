#!/usr/bin/env bash
# save_dir is a directory, and every eighth step also goes to a bucket. An agent is killed in the middle of an upload, and
# the server is stopped for a while: save_dir goes on, status warns, and the bucket never has half a version.
# Then all machines and save_dir are lost, and the bucket has the job.
. "$(dirname "$0")/jobs.sh" "$1"
save_dir=$work/save
storage_interval=4
settings=',"max_ckpt_num":2,"archive_dir":"'$S3_URL'","save_archive_interval":8,"storage_timeout_ms":8000'
train=("${large[@]}" --steps 100000 --step-ms 100 --lockstep)

at_end() { builtin kill -CONT "$S3_SERVER_PID"; }

# archived: the newest step that is a version in the bucket.
archived() { number "$(bucket list | sed -nE 's,.*/v0*([0-9]+)\.t[0-9]+/manifest\.json$,\1,p' | sort -n | tail -1)"; }
number() { echo "${1:-0}"; }
archived_at_least() { [ "$(archived)" -ge "$1" ]; }
warns() { ask a status >"$work/said" 2>&1; grep -q 'WARNING: archive_dir' "$work/said"; }
begin 2
run_on a 0 "${train[@]}"
run_on b 1 "${train[@]}"
uploading() { bucket uploads | grep -q .; }
wait_for 60 uploading || die "no upload: $(ask a status 2>&1; tail -5 "$(agent_log a)")"
kill -9 "$(agent_pid b)"
wait_for 90 archived_at_least 8 || die "nothing is archived: $(ask a status 2>&1; bucket list)"
bucket_has "$job/secret" && die "the archive has the secret"
bucket_has "$job/term" && die "the archive has terms"

before=$(archived)
kill -STOP "$S3_SERVER_PID"
wait_for 90 warns || die "no warning: $(cat "$work/said")"
more_published a 2 60
kill -CONT "$S3_SERVER_PID"
wait_for 120 archived_at_least $((before + 16)) || die "no copy since the server is back: $(ask a status 2>&1)"
no_warning() { ! warns; }
wait_for 60 no_warning || die "the warning stays: $(cat "$work/said")"
kill_trainers
kill_node a
kill_node b
for version in $(bucket list | sed -nE 's,^(.*/v[0-9]+\.t[0-9]+)/manifest\.json$,\1,p'); do
    [ "$(bucket list | grep -c "^$version/shard-")" = 2 ] || die "half a version: $(bucket list)"
done

excused="save_dir is lost on purpose, with all machines"
newest=$(archived)
rm -rf "$work/save"
mkdir "$work/save"
begin 2
run_on c 0 "${large[@]}" --steps $((newest + 2)) --done
run_on d 1 "${large[@]}" --steps $((newest + 2)) --done
all_end
[ "$(restored_step 0)" = "$newest" ] || die "restored $(restored_step 0), and $newest is in the bucket"
