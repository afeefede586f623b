#!/usr/bin/env bash
# tierckpt export writes a published version, and one that is only in memory after publishing it. The result is a
# safetensors file of the tensors, without blobs; nothing is overwritten, and a failure leaves nothing behind.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a "0" --steps 8 --wait-commit --count 5000
run_on b "1" --steps 8 --wait-commit --count 5000
all_end

# keys FILE...: the tensors in files, which are read to their ends.
keys() {
    python3 - "$@" <<'PY'
import json, os, sys
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
    assert header.pop("__metadata__") == {"format": "pt"}
    end = max(t["data_offsets"][1] for t in header.values())
    assert os.path.getsize(path) == 8 + size + end == 8 + size + 40000 * len(header), path
    print("\n".join(sorted(header)))
PY
}
all="moments.0 moments.1 params.0 params.1"
[ ! -e "$work/save/$job/v"* ] || die "something is published already"
ask a export "$work/none" 2>/dev/null && die "exported what is not published"
[ ! -e "$work/none" ] || die "a failed export left something"
ask b export "$work/memory" --memory --json | is_json || die "no export from memory"
[ "$(keys "$work/memory/model.safetensors" | xargs)" = "$all" ] || die "from memory: $(ls "$work/memory")"
good() { grep -qx "tierckpt_operation_good{job_id=\"$job\",node=\"a\",operation=\"export\"} $1" "$work/export.prom"; }
ask a export "$work/memory" --metrics-textfile "$work/export.prom" 2>/dev/null && die "an export was overwritten"
good 0 || die "metrics of an export that failed: $(cat "$work/export.prom")"

ask a export "$work/many" --shard-size 80000 --step 8 --metrics-textfile "$work/export.prom" || die "no export of step 8"
good 1 || die "metrics of an export: $(cat "$work/export.prom")"
[ "$(keys "$work"/many/model-0000[12]-of-00002.safetensors | xargs)" = "$all" ] || die "in two files: $(ls "$work/many")"
python3 - "$work/many" <<'PY' || die "the index is wrong"
import json, sys
index = json.load(open(sys.argv[1] + "/model.safetensors.index.json"))
assert index["metadata"]["total_size"] == 160000 and len(index["weight_map"]) == 4, index
PY

version=$(echo "$work/save/$job/v"*)
"$bin/tierckpt" export "$work/part" --version-dir "$version" --include 'params.*' --exclude '*.1' --strip-prefix params. \
    --add-prefix weights. || die "no export of a directory"
[ "$(keys "$work/part/model.safetensors")" = weights.0 ] || die "the patterns were not heeded"
# Names: by a file, and by an installed mapping, which the program finds beside itself and which does not fit these keys.
echo '{"format":1,"rules":[{"from":"params.{n}","to":"layers.{n}.weight"}]}' >"$work/names.json"
"$bin/tierckpt" export "$work/named" --version-dir "$version" --include 'params.*' --names "$work/names.json" || die "no export with names"
keys "$work/named/model.safetensors" | grep -qx layers.0.weight || die "the rule was not heeded"
"$bin/tierckpt" export "$work/family" --version-dir "$version" --include 'params.*' --names megatron-llama 2>"$work/why" &&
    die "a key that no rule fits was exported"
grep -q 'no rule of the mapping fits "params.0"' "$work/why" || die "the key is not named: $(cat "$work/why")"
[ ! -e "$work/family" ] || die "something was written before the error"
ask a export "$work/wrong" --dtype float12 2>/dev/null && die "an unknown kind was taken"
ask a status --shard-size 1 2>/dev/null && die "status took an option of export"
shard=$(ls -S "$version"/shard-* | head -1)
printf 'damaged!' | dd of="$shard" bs=1 seek=20000 conv=notrunc status=none
ask a export "$work/damaged" 2>"$work/why" && die "damage was exported"
grep -q "$(basename "$shard")" "$work/why" || die "the damaged file is not named: $(cat "$work/why")"
[ -z "$(ls -A "$work" | grep -E 'damaged|\.part$')" ] || die "a failed export left something: $(ls -A "$work")"
