# Shared by deploy/try, check, wheel and deb: finds and installs missing packages, and builds. Sourced, not run.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# Names of packages in deploy/packages.txt: those that Tierckpt needs (run), also those for tests (all), or those of
# packages alone (packages).
package_names() {
    sed -e '/^#/d' -e '/^$/d' "$top/deploy/packages.txt" |
        awk -v which="$1" 'BEGIN { section = "run" } /^\[/ { section = substr($1, 2, length($1) - 2); next }
            section == which || (which == "all" && section != "packages") { print $1 }'
}

missing_packages() {
    local name
    for name in $(package_names "$1"); do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || printf '%s\n' "$name"
    done
}

# A command that is installed already needs no package (a newer cmake from another source, for example).
drop_present_tools() {
    local name
    while read -r name; do
        case $name in
        gcc | g++ | cmake | pkg-config) command -v "$name" >/dev/null || printf '%s\n' "$name" ;;
        ninja-build) command -v ninja >/dev/null || printf '%s\n' "$name" ;;
        python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null || printf '%s\n' "$name" ;;
        *) printf '%s\n' "$name" ;;
        esac
    done
}

# install_missing all|run|packages: returns 2 if this user may not install them, after a line that names what is missing.
install_missing() {
    local missing
    missing=$(missing_packages "$1" | drop_present_tools)
    [ -z "$missing" ] && return 0
    say "These Debian packages are missing and will be installed:"
    local name
    for name in $missing; do grep -E "^$name " "$top/deploy/packages.txt" | sed 's/^/    /'; done
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { say "neither root nor sudo is available; run as root: apt-get install $(echo $missing)"; return 2; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq || die "apt-get update failed"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
        die "apt-get install failed for: $(echo $missing)"
}

# unpack DIRECTORY PACKAGE...: Debian's packages, without installing them, since some start services.
unpack() {
    local dir=$1 package
    shift
    say "Unpacking $* into ${dir#"$top/"}"
    mkdir -p "$dir/packages" && (cd "$dir/packages" && apt-get download -qq "$@") || return 1
    for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir" || return 1; done
}

# Debian's Prometheus and node_exporter, for the suite ops. They are unpacked into build/ops unless they are installed.
prometheus_tools() {
    local dir=$top/build/ops program missing=""
    for program in prometheus promtool prometheus-node-exporter; do
        command -v "$program" >/dev/null || [ -x "$dir/usr/bin/$program" ] || missing=yes
    done
    [ -n "$missing" ] || return 0
    unpack "$dir" prometheus prometheus-node-exporter
}

# Debian's Slurm and MUNGE, for deploy/try --slurm and the suites ops and slurm: in build/slurm unless they are installed.
slurm_tools() {
    [ -n "$(python3 "$top/deploy/demo/slurm_cluster.py" --missing)" ] || return 0
    unpack "$top/build/slurm" slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 liblua5.1-0
}

# ShellCheck, for the check of the scripts that users copy: in build/ops unless it is installed.
shellcheck_tool() {
    command -v shellcheck >/dev/null || [ -x "$top/build/ops/usr/bin/shellcheck" ] || unpack "$top/build/ops" shellcheck
}

# Helm, schemas and linters for what is in deploy/kubernetes, for the suite ops: build/kubernetes.
kubernetes_environment() {
    local venv=$top/build/kubernetes
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/kubernetes"
        python3 -m venv "$venv" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$top/tests/ops/requirements.txt"
}

has_cuda_toolkit() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }

# Prints the directory of the nccl.h that nccl_header has installed, if any.
nccl_brought() { compgen -G "$top/build/nccl/lib/python3*/site-packages/nvidia/nccl/include"; }

# Installs the package of NCCL into build/nccl for its header, which the CUDA Toolkit often lacks.
nccl_header() {
    if ! has_cuda_toolkit || [ -e /usr/include/nccl.h ] || [ -e /usr/local/cuda/include/nccl.h ] || nccl_brought >/dev/null; then
        return 0
    fi
    say "Installing nvidia-nccl-cu13 into build/nccl, for the header that the NCCL module needs"
    python3 -m venv "$top/build/nccl" &&
        "$top/build/nccl/bin/pip" install -q --disable-pip-version-check --no-deps nvidia-nccl-cu13==2.32.3
}

# configure_and_build PRESET CMAKE_OPTIONS...: build/PRESET, as CMakePresets.json describes it, targets included.
configure_and_build() {
    local preset=$1 dir=$top/build/$1
    shift
    local nccl
    nccl=$(nccl_brought) && set -- "-DTCK_NCCL_INCLUDE=$nccl" "$@"
    mkdir -p "$dir"
    local launcher=()
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    cmake -S "$top" --preset "$preset" "${launcher[@]}" "$@" >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log"; return 1; }
    (cd "$top" && cmake --build --preset "$preset") >"$dir/build.log" 2>&1 || { tail -40 "$dir/build.log"; return 1; }
}

pip_install() { "$top/build/venv/bin/pip" install -q --disable-pip-version-check "$@"; }

# torch_environment: the environment with PyTorch, created once: build/venv.
torch_environment() {
    local venv=$top/build/venv
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/venv"
        python3 -m venv "$venv" || return 1
    fi
    if ! "$venv/bin/python" -c 'import torch, safetensors, numpy, pytest, xdist' 2>/dev/null; then
        say "Installing into it: torch (the training of the demonstration), safetensors and numpy (to read published versions), pytest and pytest-xdist (tests)"
        pip_install safetensors==0.8.0 numpy pytest pytest-xdist || return 1
        # A build without CUDA is enough, if pip is configured to find one.
        pip_install torch==2.13.0 || return 1
    fi
}
# python_environment [EXTRA]: the same, and in it this package. EXTRA: "[lint,report]".
python_environment() {
    torch_environment || return 1
    # In the environment, since pip's options for it differ between versions.
    local nccl
    nccl=$(nccl_brought) && local -x SKBUILD_CMAKE_DEFINE="TCK_NCCL_INCLUDE=$nccl"
    pip_install "$top${1:-}"
}

# The environment with the training frameworks, in the versions with which the adapters are tested: build/frameworks.
frameworks_environment() {
    local venv=$top/build/frameworks
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/frameworks"
        python3 -m venv "$venv" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$top/tests/frameworks/requirements.txt" || return 1
    "$venv/bin/pip" install -q --disable-pip-version-check "$top" || return 1
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$top/python/easyckpt" "$top/python/sagemaker" \
        "$top/python/hyperpod"
}

# Servers with the interface of S3, for the suite s3: build/s3.
s3_environment() {
    local venv=$top/build/s3
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/s3"
        python3 -m venv "$venv" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$top/tests/s3/requirements.txt"
}

# The environment with what bench/run compares with, for PEERS and GOODPUT: build/peers. A package of the second file that
# is not available is left out, and bench/run skips it by name.
peers_environment() {
    local venv=$top/build/peers package
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/peers"
        python3 -m venv "$venv" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$top/bench/peers/requirements.txt" || return 1
    for package in $(sed '/^#/d' "$top/bench/peers/requirements.alone.txt"); do
        "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$package" || say "$package is not available"
    done
}

# The environment of the programs that are killed and resumed: build/programs; its folder "beside" has packages that
# would disturb other programs.
programs_environment() {
    local venv=$top/build/programs
    if [ ! -x "$venv/bin/python" ]; then
        say "Creating a Python environment in build/programs"
        python3 -m venv "$venv" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$top/tests/programs/requirements.txt" || return 1
    if [ ! -d "$venv/beside/torchvision" ]; then
        "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$venv/beside/torchvision" \
            -r "$top/tests/programs/requirements.beside.txt" || say "torchvision is not available: its programs are skipped"
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check "$top"
}
