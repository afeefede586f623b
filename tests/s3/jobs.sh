# Shared by the jobs whose save_dir is in a bucket; sourced with the build directory as $1. test_jobs.py starts them.
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cluster/lib.sh" "$1"
save_dir=$S3_URL
settings=',"max_ckpt_num":2'
storage_interval=4
# Of more than one part each: two arrays of 24 MB for a rank.
large=(--count 3000000)

# bucket OP...: what bucket.py does.
bucket() { "$S3_PYTHON" "$here/bucket.py" "$@"; }
bucket_has() { bucket list | grep -qE -- "$1"; }
# published NODE, publishes NODE COUNT: by the log of the coordinator's node.
published() { cat "$(agent_log "$1")" 2>/dev/null | grep -c 'is published' || true; }
publishes() { [ "$(published "$1")" -ge "$2" ]; }
more_published() { wait_for "$3" publishes "$1" $(($(published "$1") + $2)) || die "nothing more is published: $(tail -5 "$(agent_log "$1")")"; }
# listed NODE: the steps that `ls` says are published.
listed() { ask "$1" --json ls | python3 -c 'import json, sys; print(*[v["version"]["step"] for v in json.load(sys.stdin)["published"]])'; }
# all_whole NODE: what the bucket has as a version is one.
all_whole() { ask "$1" verify published >"$work/said" 2>&1 || die "verify: $(cat "$work/said")"; }
# no_secret: neither the key to the bucket nor the secret of the job is in any file that this test made.
no_secret() {
    local secret
    ! grep -rlF -- "$S3_SECRET" "$work" || die "a file has the key to the bucket"
    secret=$(bucket cat "$job/secret")
    [ ${#secret} -ge 64 ] || die "the bucket has no secret of the job"
    ! grep -rlF -- "${secret:0:64}" "$work" || die "a file has the secret of the job"
}
