#!/usr/bin/env bash
# A published version that is damaged in any of these ways is passed over with a message, and the one before it is
# restored: a flipped byte, a truncated file, a missing manifest, two files that were swapped.
. "$(dirname "$0")/lib.sh" "$1"
excused="the newest version is damaged on purpose, where nothing else has it"
storage_interval=4
settings=',"max_ckpt_num":2'
begin 2
run_on a "0 1" --steps 8 --wait-commit --wait-drained
all_end
kill_node a
cp -a "$work/save" "$work/whole"
newest=$(ls -d "$work"/save/test/v*08.t* 2>/dev/null)
[ -d "$newest" ] || die "step 8 is not published: $(ls "$work/save/test")"
files=("$newest"/*.safetensors)
[ ${#files[@]} -ge 2 ] || die "fewer than two files: $(ls "$newest")"

flipped() { printf 'damaged!' | dd of="${files[0]}" bs=1 seek=200001 conv=notrunc status=none; }
shortened() { truncate -s -4096 "${files[0]}"; }
without_manifest() { rm "$newest/manifest.json"; }
swapped() {
    mv "${files[0]}" "$newest/x"
    mv "${files[1]}" "${files[0]}"
    mv "$newest/x" "${files[1]}"
}
nodes=(b c d e)
for damage in flipped shortened without_manifest swapped; do
    node=${nodes[0]} # a new machine each time: nothing but storage has the version
    nodes=("${nodes[@]:1}")
    rm -rf "$work/save"
    cp -a "$work/whole" "$work/save"
    $damage || die "$damage: could not be done"
    ask "$node" verify published >/dev/null && die "$damage: verify finds nothing"
    storage_interval=0
    begin 2
    run_on "$node" "0 1" --steps 5 --done
    all_end
    [ "$(restored_step 0)" = 4 ] || die "$damage: restored $(restored_step 0) instead of 4"
    logged "$node" '(000000000008.t|1\.8|\.8 )' || die "$damage: the log does not name the version"
    wait_for 60 no_agent "$node" || die "$damage: the agent stays"
done
