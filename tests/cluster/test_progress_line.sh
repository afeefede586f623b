#!/usr/bin/env bash
# Commands that take long show on a terminal what they do, and since when nothing has moved; elsewhere they show nothing of
# it. drain --wait waits for as long as the drain lasts.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
settings=',"storage_timeout_ms":60000'
begin 2
run_on a 0 --steps 100000 --step-ms 20 --wait-commit
run_on b 1 --steps 100000 --step-ms 20 --wait-commit
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
ask a drain --wait >"$work/answer" || die "drain: $(cat "$work/answer")"
stop_serving
on_terminal() { # COMMAND...
    script -qefc "$(printf '%q ' "$bin/tierckpt" --config "$work/run/$job/a/config.json" "$@")" /dev/null </dev/null
}
on_terminal verify published >"$work/shown" &
shows() { grep -aqE "$1" "$work/shown"; }
wait_for 60 shows 'verify: [0-9]+ s, [0-9.]+ [KMGi]*B read, [0-9.]+ [KMGi]*B written, without progress for' ||
    die "no progress is shown: $(cat -v "$work/shown")"
ask a verify published >"$work/plain" 2>&1 &
plain=$!
moment
builtin kill -CONT "$server"
wait $plain || die "verify: $(cat "$work/plain")"
! grep -q 'read,' "$work/plain" || die "progress is shown without a terminal: $(cat "$work/plain")"
wait_for 60 shows 'versions checked' || die "verify does not end: $(cat -v "$work/shown")"
