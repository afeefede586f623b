#!/usr/bin/env bash
# A published file that gives an I/O error when it is checked is not damaged: the log says so once (and not for each
# file), with its path. status is bad as long as this lasts, and good again when the file can be read.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
storage_interval=4
settings=',"scrub_storage_interval_s":1'
begin 1
run_on a 0 --steps 8 --wait-commit --wait-drained
all_end
checked() { ask a --json status | python3 -c 'import json,sys; sys.exit(json.load(sys.stdin)["scrub"]["files_checked"] < 2)'; }
wait_for 60 checked || die "the files are not checked: $(ask a --json status)"
file=$(basename "$(ls "$work"/save/test/v*08.t*/*.safetensors | head -1)")
fault "a published file cannot be read"
lie 1000 EIO "$file" "" read
cannot="cannot be checked: $work/save/test: v0*[48].t[0-9]*: .*$file.*Input/output error"
wait_for 60 logged a "$cannot" || die "the log does not say that $file cannot be read: $(tail -5 "$(agent_log a)")"
troubled() { ! ask a status >"$work/said" && grep -qE "storage has been failing since .*$file.*Input/output error" "$work/said"; }
wait_for 60 troubled || die "status does not say it: $(cat "$work/said")"
sleep 3
[ "$(grep -cE "$cannot" "$(agent_log a)")" = 1 ] || die "it is not told once: $(grep -E "$cannot" "$(agent_log a)")"
lie 0
good() { ask a status >"$work/said"; }
wait_for 60 good || die "it can be read, and status stays bad: $(cat "$work/said")"
