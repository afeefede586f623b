#!/usr/bin/env bash
# Foreign things below save_dir are neither followed, opened, waited for nor deleted, and the good version is restored:
# links that lead out of it, pipes, device nodes, an endless manifest, names with dots, deeply nested directories.
. "$(dirname "$0")/lib.sh" "$1"
excused="the newest version is damaged on purpose, where nothing else has it"
storage_interval=4
settings=',"max_ckpt_num":0'
begin 1
run_on a 0 --steps 8 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 8$'
kill_node a
save=$work/save/test good=$(basename "$save"/v*04.t1) newest=$(echo "$save"/v*08.t1)
mkdir "$work/outside"
echo "not ours" >"$work/outside/file"
cp -r "$save/$good" "$work/outside/version"
named() { echo "$save/v$(printf '%012d' "$1").t1"; } # a newer version of this name
copy() { cp -r "$save/$good" "$(named "$1")" && rm -f "$(named "$1")/$2"; }
shard=$(basename "$(ls "$save/$good"/*.safetensors | head -1)")
fault "hostile files"
ln -s "$work/outside/version" "$(named 30)"
copy 31 manifest.json && ln -s "$work/outside/file" "$(named 31)/manifest.json"
copy 32 manifest.json && mkfifo "$(named 32)/manifest.json"
copy 33 manifest.json && mkdir -p "$(named 33)/manifest.json/manifest.json"
copy 34 manifest.json && truncate -s 8G "$(named 34)/manifest.json"
copy 35 manifest.json && { printf '{"format":1,"shards":['; head -c 4M /dev/zero | tr '\0' '['; } >"$(named 35)/manifest.json"
copy 39 none && sed -i "s#$shard#../../../outside/file#" "$(named 39)/manifest.json"
mkdir -p "$save/v000000000040.t1 " "$save/v..t1" "$save/vffffffffffff.t1" "$save/v999999999999999999999.t1"
touch "$(named 41)"
echo x >"$save/term.2x"
mkfifo "$save/LATEST.new" "$save/v000000000042.t1"
(cd "$work/save" && find . ! -path './test/audit*' ! -name 'term.*' ! -name LATEST | sort) >"$work/before"
find "$work/outside" -type f -exec sha256sum {} + >"$work/sums"

storage_interval=0
# The newest version has a whole manifest, and its one file is something else: no process follows it or waits for it.
into_link() { ln -s "$work/outside/version/$shard" "$1"; }
into_pipe() { mkfifo "$1"; }
into_device() { mknod "$1" c 1 5; }
into_directory() { mkdir "$1"; }
opened=$work/opened nodes=(b c d e)
traced() { shift; exec strace -f --seccomp-bpf -y -qq -e trace=open,openat,openat2,unlink,unlinkat -e signal=none -o "$opened.$BASHPID" "$@"; }
! sanitized && strace -o /dev/null true 2>/dev/null && in_node=traced || echo "no strace here: what is opened is not looked at"
mv "$newest/$shard" "$work/whole"
for kind in link pipe device directory; do
    node=${nodes[0]} nodes=("${nodes[@]:1}")
    "into_$kind" "$newest/$shard" 2>/dev/null || { echo "no $kind can be made here"; continue; }
    fault "the newest version's file is a $kind"
    begin 1
    run_on "$node" 0 --steps 6 --wait-commit --done
    all_end
    [ "$(restored_step 0)" = 4 ] || die "$kind: restored $(restored_step 0) instead of 4: $(out 0 | tail -3)"
    [ "$(restored_from 0 storage)" -gt 0 ] || die "$kind: not from storage"
    rm -rf "${newest:?}/$shard"
    in_node="" # it is slow
done
mv "$work/whole" "$newest/$shard"
if compgen -G "$opened.*" >/dev/null; then
    # With -y strace says what each descriptor is, so a link that was followed shows where it led.
    grep -q "= [0-9]*<$newest>" "$opened".* || die "strace does not show what is opened"
    ! grep -E "= [0-9]+<($work/outside|/dev/mem|$newest/$shard)" "$opened".* || die "something was opened that is no file of ours"
fi
begin 1
run_on f 0 --steps 9 # whole again
all_end
[ "$(restored_step 0)" = 8 ] || die "restored $(restored_step 0) instead of 8"
for what in "ls" "verify published" "prune --dry-run --keep 1"; do
    # shellcheck disable=SC2086
    timeout 60 "$bin/tierckpt" --config "$work/run/test/f/config.json" $what >"$work/said" 2>&1
    [ $? -ne 124 ] || die "$what hangs"
done
! grep -q 'v000000000040\|vffff' "$work/said" || die "prune speaks of names that are no versions: $(cat "$work/said")"
(cd "$work/save" && find . ! -path './test/audit*' ! -name 'term.*' ! -name LATEST | sort) >"$work/after"
gone=$(comm -23 "$work/before" "$work/after")
[ -z "$gone" ] || die "deleted though it is not ours: $gone"
sha256sum --quiet -c "$work/sums" || die "something outside was changed"

# The job's directory itself is another one now.
before=$(ls -A "$work/outside" | sort)
fault "the job's directory is replaced by a link"
mv "$save" "$work/save/moved"
ln -s "$work/outside" "$save"
storage_interval=4
begin 1
run_on f 0 --steps 20 --wait-commit
all_end
begin 1
run_on z 0 --steps 4
none_ends_well "an agent started over a link"
must_say 0 '^ERROR attach: '
[ "$(ls -A "$work/outside" | sort)" = "$before" ] || die "written through the link: $(ls -A "$work/outside")"
