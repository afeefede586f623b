#!/usr/bin/env bash
# The small files of the job's directory damaged while no agent runs: what the job can do without is ignored, and
# what it needs makes the start fail with the name of the file. Either way the published version stays as it is.
. "$(dirname "$0")/lib.sh" "$1"
storage_interval=4
begin 2
run_on a "0 1" --steps 4 --wait-commit --wait-drained --done
all_end
wait_for 60 no_agent a || die "the agent stays"
dir=$work/save/$job
cp -a "$dir" "$work/whole"
storage_interval=0

noise() { head -c 64 /dev/urandom >"$dir/$1"; }
flipped() { printf '\377' | dd of="$dir/$1" bs=1 seek=7 conv=notrunc status=none; }
pipe() { rm "$dir/$1" && mkfifo "$dir/$1"; }
directory() { rm "$dir/$1" && mkdir "$dir/$1"; }
link() { mv "$dir/$1" "$work/away" && ln -s "$work/away" "$dir/$1"; }
gone() { rm "$dir/$1"; }

# damaged FILE DAMAGE: the directory is whole but for that; a new machine each time.
count=0
damaged() {
    count=$((count + 1))
    node=n$count
    rm -rf "$dir" "$work/away"
    cp -a "$work/whole" "$dir"
    "$2" "$1"
    begin 2
    run_on "$node" "0 1" --steps 5 --done
}
# passed_over FILE DAMAGE... / refused FILE DAMAGE...
passed_over() {
    local file=$1 damage
    shift
    for damage in "$@"; do
        damaged "$file" "$damage"
        all_end
        kill_node "$node" # it may still be writing its notes
        [ "$(restored_step 0)" = 4 ] || die "$file $damage: restored '$(restored_step 0)' instead of 4"
    done
}
refused() {
    local file=$1 damage
    shift
    for damage in "$@"; do
        damaged "$file" "$damage"
        none_ends_well "$file $damage: a job started on it"
        kill_node "$node" # its supervisor would try again in the middle of the next damage
        said 0 "ERROR .*$file" || said 1 "ERROR .*$file" || die "$file $damage: the error does not name it: $(out 0)"
        cmp -s "$dir"/v*/manifest.json "$work"/whole/v*/manifest.json || die "$file $damage: the version was touched"
    done
}
refused secret flipped pipe link
passed_over secret gone
refused .tierckpt noise directory
passed_over term.1 noise pipe directory
passed_over LATEST directory
passed_over audit.a.jsonl noise pipe
