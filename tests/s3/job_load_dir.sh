#!/usr/bin/env bash
# A job goes from a directory to a bucket, and back: load_dir names where it was.
. "$(dirname "$0")/jobs.sh" "$1"
steps=0
# lap NAME SAVE_DIR LOAD_DIR: eight steps more, saved there.
lap() {
    local from=$steps
    save_dir=$2 settings=${3:+',"load_dir":"'$3'"'}
    steps=$((steps + 8))
    begin 2
    run_on a 0 --twins 2 --steps $steps --wait-commit --wait-drained
    run_on b 1 --twins 2 --steps $steps --wait-commit --wait-drained
    all_end
    [ "$from" = 0 ] || [ "$(restored_step 0)" = "$from" ] || die "$1: restored $(restored_step 0) instead of $from"
    [ "$from" = 0 ] || [ "$(all_restored_from storage 0 1)" -gt 0 ] || die "$1: not from storage"
    must_say 0 "^DRAINED $steps\$"
    ask a ls >"$work/said" 2>&1 || die "$1: ls: $(cat "$work/said")"
    [ -z "$3" ] || grep -q load_dir "$work/said" || die "$1: ls does not list load_dir: $(cat "$work/said")"
    all_whole a
    kill_node a
    kill_node b
    rm -rf "$work/run"
    mkdir "$work/run"
}
mkdir "$work/later"
lap "a directory" "$work/save" ""
lap "from there to a bucket" "$S3_URL/first" "$work/save"
lap "from a bucket to another one" "$S3_URL/second" "$S3_URL/first"
lap "from a bucket to a directory" "$work/later" "$S3_URL/second"
