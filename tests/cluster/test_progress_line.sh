#!/usr/bin/env bash
# Commands that take long show on a terminal what they do, and since when nothing has moved; elsewhere they show nothing of
# it. drain --wait waits for as long as the drain lasts. With --metrics-textfile, verify writes its progress and how it ended
# into a file, which keeps the last end while the next run is under way or has died.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
settings=',"storage_timeout_ms":60000'
begin 2
run_on a 0 --steps 100000 --step-ms 20 --wait-commit
run_on b 1 --steps 100000 --step-ms 20 --wait-commit
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
ask a drain --wait >"$work/answer" || die "drain: $(cat "$work/answer")"
stop_serving
file=$work/verify.prom
# value NAME LABELS: of the sample in the file.
value() { sed -nE "s/^tierckpt_$1\{job_id=\"$job\",node=\"a\",$2\} (.*)$/\1/p" "$file" 2>/dev/null; }
progress_is_written() {
    awk -v age="$(value operation_seconds 'operation="verify"')" -v quiet="$(value operation_quiet_seconds 'operation="verify"')" \
        'BEGIN { exit !(age >= 2 && quiet >= 1) }'
}
on_terminal() { # COMMAND...
    script -qefc "$(printf '%q ' "$bin/tierckpt" --config "$work/run/$job/a/config.json" "$@")" /dev/null </dev/null
}
on_terminal verify published >"$work/shown" &
shows() { grep -aqE "$1" "$work/shown"; }
wait_for 60 shows 'verify: [0-9]+ s, [0-9.]+ [KMGi]*B read, [0-9.]+ [KMGi]*B written, without progress for' ||
    die "no progress is shown: $(cat -v "$work/shown")"
ask a verify published --metrics-textfile "$file" >"$work/plain" 2>&1 &
plain=$!
wait_for 60 progress_is_written || die "no progress is written: $(cat "$file")"
[ -z "$(value operation_ended_timestamp_seconds 'operation="verify"')" ] || die "no verify has ended yet: $(cat "$file")"
builtin kill -CONT "$server"
wait $plain || die "verify: $(cat "$work/plain")"
! grep -q 'read,' "$work/plain" || die "progress is shown without a terminal: $(cat "$work/plain")"
wait_for 60 shows 'versions checked' || die "verify does not end: $(cat -v "$work/shown")"

# How it ended.
ended=$(value operation_ended_timestamp_seconds 'operation="verify"')
[ -n "$ended" ] || die "the file does not say when verify ended: $(cat "$file")"
[ "$(value operation_seconds 'operation="verify"')" = 0.000 ] || die "verify is still under way by its file: $(cat "$file")"
[ "$(value operation_good 'operation="verify"')" = 1 ] || die "the answer was good: $(cat "$file")"
[ "$(value verify_findings 'result="bad"')$(value verify_findings 'result="unchecked"')" = 00 ] || die "nothing was found: $(cat "$file")"
[ "$(value verify_checked 'what="versions"')" -ge 1 ] || die "no version was checked: $(cat "$file")"
[ "$(value operation_bytes 'operation="verify",direction="in"')" -gt 0 ] || die "nothing was read: $(cat "$file")"

# One that is killed leaves both: that it was under way, and how the last one ended.
stop_serving
"$bin/tierckpt" --config "$work/a.json" verify published --metrics-textfile "$file" >"$work/plain" 2>&1 &
killed=$!
wait_for 60 progress_is_written || die "no progress is written: $(cat "$file")"
builtin kill -KILL "$killed"
wait "$killed" 2>/dev/null
builtin kill -CONT "$server"
[ "$(value operation_ended_timestamp_seconds 'operation="verify"')" = "$ended" ] || die "the last end is gone: $(cat "$file")"
[ "$(value operation_good 'operation="verify"')" = 1 ] || die "the last end is gone: $(cat "$file")"

# A file that cannot be written is an error before anything is read, and a name that node_exporter does not read is, too.
! ask a verify published --metrics-textfile "$work/none/v.prom" >"$work/plain" 2>&1 || die "verify writes into $work/none"
grep -qF -- "--metrics-textfile: create $work/none/v.prom.tmp: No such file or directory" "$work/plain" || die "$(cat "$work/plain")"
! ask a verify published --metrics-textfile "$work/v.txt" >"$work/plain" 2>&1 || die "verify writes $work/v.txt"
grep -qF -- "--metrics-textfile: $work/v.txt is not the name of a .prom file" "$work/plain" || die "$(cat "$work/plain")"
! ask a ls --metrics-textfile "$file" >"$work/plain" 2>&1 || die "ls takes --metrics-textfile"
