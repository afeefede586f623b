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
# fails WHAT PATTERN: neither does the job start nor do the commands work, and each says why, within prompt_s seconds.
prompt_s=60
fails() {
    local command got
    local begun=$SECONDS
    begin 1
    run_on "n$launch" 0 --steps 4 # another node each time: a supervisor keeps the environment that it was started with
    none_ends_well "$1: the job starts"
    must_say 0 "^ERROR attach: .*$2"
    [ "$(grep -c '^ERROR' "$work/out.$launch.0")" = 1 ] || die "$1: $(out 0)"
    ! grep -qE "^ERROR.*$save_dir.*$save_dir" "$work/out.$launch.0" || die "$1: the URL comes twice: $(out 0)"
    [ $((SECONDS - begun)) -le $prompt_s ] || die "$1: the error came after $((SECONDS - begun)) s"
    for command in ls "verify published" "prune --keep 1" "forget --dry-run" doctor; do
        got=0
        timeout "$prompt_s" env TIERCKPT_RUNTIME_DIR="$work/none" "$bin/tierckpt" --config-json "$(node_json z)" $command >"$work/said" 2>&1 || got=$?
        [ $got = 1 ] || die "$1: $command ended with $got: $(cat "$work/said")"
        grep -qE -- "$2" "$work/said" || die "$1: $command says: $(cat "$work/said")"
    done
    ! grep -rqF -- "$S3_SECRET" "$work" || die "$1: a file has the key"
}
