#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the models exhaustively: our rules must hold, each worse rule must fail, and what the rules are about must be
# reachable (else a model that does nothing would pass). `run.sh deep` adds the larger spaces.
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v spin > /dev/null && command -v gcc > /dev/null || { echo "skipped: needs spin and gcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0

# verify <holds|fails> <model> <definitions>...: in an empty directory
verify() {
    local wanted=$1 model=$2 got
    shift 2
    spin -a "$@" "$here/$model" > spin.log 2>&1 &&
        gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c 2> gcc.log || { cat ./*.log; return 1; }
    ./pan -E -m1000000 -w24 > pan.log 2>&1
    if grep -q 'errors: 0' pan.log; then got=holds; elif grep -q 'errors: [1-9]' pan.log; then got=fails; else got=unknown; fi
    if grep -q 'max search depth too small\|out of memory' pan.log; then got=unknown; fi
    echo "$model $*: $got, $(awk '/states, stored/ { print $1; exit }' pan.log) states"
    [ "$got" = "$wanted" ] || { echo "  expected: $wanted"; return 1; }
}

# check <holds|fails> <model> <definitions>...: in the background, as many at a time as there are processors
check() {
    local dir=$work/$((count += 1))
    mkdir "$dir"
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    (cd "$dir" && verify "$@" > outcome && touch good; rm -f pan pan.*; true) &
}

# The outcomes in the order of the checks.
finish() {
    local i failed=0
    wait
    for ((i = 1; i <= count; i++)); do
        cat "$work/$i/outcome"
        [ -e "$work/$i/good" ] || failed=1
    done
    exit $failed
}

check holds fence.pml -DFENCE=2
for fence in 0 1; do check fails fence.pml -DFENCE=$fence; done
check fails fence.pml -DFENCE=2 -DREACH=2

check holds publish.pml -DORDER=0
for order in 1 2 3 4 5 6 7 8; do check fails publish.pml -DORDER=$order; done
check fails publish.pml -DORDER=0 -DREACH=2

check holds reserve.pml -DRULE=0
for rule in 1 2 3 4 5 6; do check fails reserve.pml -DRULE=$rule; done
for reach in 1 2; do check fails reserve.pml -DREACH=$reach; done

check holds claim.pml -DWHAT=0
check holds claim.pml -DWHAT=1
for rule in 1 2 3 4 5 6 8; do check fails claim.pml -DRULE=$rule; done
for rule in 1 4 5 7; do check fails claim.pml -DWHAT=1 -DRULE=$rule; done
for reach in 1 2 3 4; do check fails claim.pml -DREACH=$reach; done

check holds commit.pml -DPOLICY=4 -DSLOTS=2 -DMAXV=2
for policy in 0 1 2 3; do check fails commit.pml -DPOLICY=$policy -DABORTS=0; done
check fails commit.pml -DPOLICY=4 -DCOORD=1 -DMAXV=2
check fails commit.pml -DPOLICY=4 -DCOORD=2
check fails commit.pml -DPOLICY=4 -DACK=1 -DMAXV=2
check fails commit.pml -DPOLICY=4 -DREACH=2 -DMAXV=2
if [ "${1:-}" = deep ]; then # minutes, and gigabytes, so one at a time
    wait
    nproc() { echo 1; }
    for what in 0 1; do check holds claim.pml -DWHAT=$what -DSTARTS=3 -DLATE=1; done
    for slots in 2 3; do check holds commit.pml -DPOLICY=4 -DSLOTS=$slots; done
fi
finish
