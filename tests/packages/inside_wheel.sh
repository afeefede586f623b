# What test_wheel.sh runs in the bare Debian, as a user without rights, with README.md's quick start in ~/quick.sh and
# ~/train.py.
die() { printf '%s\n' "$*"; exit 1; }
cd

# The quick start, to the letter. The first run of its program is killed, the second one continues and publishes.
# On a busy machine the 15 s of the first run may be over before it has imported PyTorch and begun.
for try in 1 2 3; do
    mkdir "try$try" && cd "try$try" && cp ../quick.sh ../train.py . || die "no directory for the quick start"
    bash quick.sh >~/quick.log 2>&1
    from=$(sed -nE 's/^from step ([0-9]+)$/\1/p' ~/quick.log | xargs)
    [[ $from == 0 ]] || break
    rm -rf venv
    cd .. || exit 1
done
[[ $from =~ ^0\ [1-9] ]] && grep -q '^published below' ~/quick.log || { cat ~/quick.log; die "the quick start began at the steps '$from'"; }
echo "quick start: from step ${from/ / and then from step }"
. venv/bin/activate
cd || exit 1
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Every library is found, and UCX in libucx-cu13.
for file in "$site"/tierckpt/bin/* "$site"/tierckpt/lib/*.so; do
    ! ldd "$file" | grep 'not found' || die "$file lacks libraries"
done
ldd "$site/tierckpt/bin/tierckptd" | grep -q "libucp.so.0 => $site/.*libucx/lib/" || die "UCX is not the one of libucx-cu13"
# One that LD_LIBRARY_PATH names comes first: a cluster's, with its RDMA.
mkdir other && cp "$site"/libucx/lib/lib*.so.0 other/
[ -e /sys/class/infiniband ] || tierckpt doctor | grep "^note *UCX *UCX 1.22.* in $site/libucx/lib: this machine has no RDMA devices" ||
    die "doctor does not say which UCX is used: $(tierckpt doctor)"
LD_LIBRARY_PATH=$HOME/other tierckptd --ucx | grep -q "in $HOME/other: LD_LIBRARY_PATH names it" || die "--ucx: $(LD_LIBRARY_PATH=$HOME/other tierckptd --ucx)"
LD_LIBRARY_PATH=$HOME/other ldd "$site/tierckpt/bin/tierckptd" | grep -q "libucp.so.0 => $HOME/other/" || die "LD_LIBRARY_PATH does not choose UCX"
for program in tierckpt tierckptd tierckpt-supervisor; do
    "$program" --help | grep -q "^Usage: $program" || die "$program does not start"
done

# train MODE OUT KILL: two processes; when 20 steps are done, the function KILL kills what it will. OUT is also the job.
train() {
    torchrun --nproc-per-node 2 --max-restarts 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-id "$2" \
        training.py "$1" "$2" >"$2.log" 2>&1 &
    local launcher=$!
    until grep -q '^step 20$' "$2.log"; do kill -0 $launcher 2>/dev/null || { cat "$2.log"; die "$1: the training ended"; }; sleep 0.1; done
    $3 "$2"
    wait $launcher || { tail -50 "$2.log"; die "$1: the training was not continued"; }
    [ -s "$2" ] || die "$1: no result"
}
nothing() { :; }
trainer() { kill -9 "$(grep -oE 'rank 1, process [0-9]+:' "$1.log" | tail -1 | grep -oE '[0-9]+:' | tr -d :)"; }
# Everything that runs for the node n1: its trainer, its agent and the keeper of its memory.
node() {
    local process
    for process in /proc/[0-9]*; do
        ! tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q "run/$1/n1" || kill -9 "${process#/proc/}"
    done
    trainer "$1"
}
# continued OUT: both ranks resumed at a step that was saved in memory. Two ranks may write into one line.
continued() {
    local from
    from=$(grep -oE 'rank [01], process [0-9]+: from step [0-9]+' "$1.log" | tail -2 | sed 's/.* //' | sort -u)
    [ "$(wc -w <<<"$from")" -eq 1 ] && [ "$from" -ge 14 ] || { cat "$1.log"; die "$1: continued from step '$from'"; }
    printf '%s: continued from step %s\n' "$1" "$from"
}

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
train processes whole nothing
train processes killed trainer && continued killed
# Copies between the two nodes go by UCX, over TCP; with shared memory, too, in the second run.
train nodes tcp node && continued tcp
UCX_TLS=tcp,posix,sysv train nodes shm node && continued shm
for out in killed tcp shm; do cmp whole $out || die "$out: another result than that of the training that nothing happened to"; done
! grep -h 'warn.* UCX' run/*/*/agent.log || die "an agent warns of its UCX"
