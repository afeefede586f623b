# What test_image.sh runs in the file system of the image, as its user: two agents, started as the image starts them, and a
# training of two ranks, which is killed and goes on from their memory.
die() { printf '%s\n' "$*"; tail -n 20 /user/*.log /user/run/image/*/agent.log 2>/dev/null; exit 1; }
PATH=/usr/local/bin:$PATH
cd /user
mkdir -p save run meet.1 meet.2
/usr/local/libexec/tierckpt/tierckptd --version | grep '^tierckptd [0-9]' || die "the agent does not start"
config() { # NODE
    printf '{"job":"image","node":"%s","runtime_dir":"/user/run","save_dir":"/user/save","save_mem_interval":2,"save_storage_interval":0,"memory_cap_bytes":"256MiB","net_device":"lo","linger_s":60}' "$1"
}
for node in a b; do
    config $node >$node.json
    TIERCKPT_CONFIG=/user/$node.json TIERCKPT_JOB=image TIERCKPT_NODE=$node /usr/local/bin/tierckpt-agent >$node.log 2>&1 &
done
for node in a b; do timeout 60 tierckpt --config /user/$node.json status --wait >/dev/null || die "no agent of $node"; done

# train LAUNCH STEPS: to the end of its steps, with the image's library.
library=$(find /usr/local/lib -name 'libtierckpt.so.*' | head -1)
train() {
    local rank=0 node
    trainers=()
    for node in a b; do
        LD_LIBRARY_PATH=$(dirname "$library") cluster_trainer --json "$(config $node)" --oob /user/meet."$1" --rank $rank --world 2 --steps "$2" --step-ms 20 --wait-commit >"rank$rank.$1.log" 2>&1 &
        trainers+=($!)
        rank=$((rank + 1))
    done
}
train 1 100000
for _ in $(seq 600); do ! grep -qs '^COMMITTED' rank0.1.log rank1.1.log || break; kill -0 "${trainers[@]}" 2>/dev/null || break; sleep 0.1; done
newest=$(cat rank?.1.log | sed -nE 's/^COMMITTED ([0-9]+)$/\1/p' | sort -n | tail -1)
[ -n "$newest" ] || die "nothing was committed"
kill -9 "${trainers[@]}"
{ wait "${trainers[@]}" || true; } 2>/dev/null
train 2 $((newest + 40))
for trainer in "${trainers[@]}"; do wait "$trainer" || die "a trainer failed after the restart"; done
for rank in 0 1; do
    step=$(sed -nE 's/^RESTORED .*step=([0-9]+) .*/\1/p' rank$rank.2.log)
    [ "${step:-0}" -ge "$newest" ] || die "rank $rank restored step '$step', and $newest was committed"
done
echo "restored step $step from the memory of the image's agents"
