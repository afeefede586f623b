#!/usr/bin/env bash
# save_dir is a different directory on each of two nodes of one job: an error that names both nodes and the path comes
# within the time that sessions may take, both with the secrets that the agents create there and with one that all were
# given.
. "$(dirname "$0")/lib.sh" "$1"
declare -f node_json | sed '1s/.*/shared_json ()/' >"$work/shared_json"
. "$work/shared_json"
node_json() { shared_json "$1" | sed "s|\"save_dir\":\"$work/save\"|\"save_dir\":\"$work/$1/save\"|"; }
mkdir -p "$work/a" "$work/b"
settings=',"session_wait_ms":6000'

refused() { # WHAT
    local pid
    begin 2
    run_on a "0" --steps 50 --step-ms 20
    run_on b "1" --steps 50 --step-ms 20
    for pid in "${trainers[@]}"; do wait "$pid" && die "$1: a training began though save_dir is not shared"; done
    cat "$work"/out."$launch".*
    grep -hE '^ERROR' "$work"/out."$launch".* | grep -E "save_dir" | grep -E "node (a|b)" | grep -qF "$work/" ||
        die "$1: the ranks say: $(cat "$work"/out."$launch".*)"
}
refused "secrets of their own"
kill_node a
kill_node b
(umask 077 && head -c 32 /dev/urandom >"$work/token")
settings="$settings,\"token_file\":\"$work/token\""
job=given
refused "one secret given"
