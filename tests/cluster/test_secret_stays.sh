#!/usr/bin/env bash
# The job's secret, a token of our own with a marker in it, appears nowhere: in no log, status, argument, environment,
# published or parked file, and no core is left of an agent that aborts.
. "$(dirname "$0")/lib.sh" "$1"
marker=CANARY$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
(umask 077 && printf '%s' "$marker" | head -c 32 >"$work/token")
[ "$(wc -c <"$work/token")" -ge 16 ] || die "the token is too short"
marker=$(cat "$work/token")
settings=",\"token_file\":\"$work/token\""
storage_interval=4
ulimit -c unlimited 2>/dev/null
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 6 || die "no commit: $(out 0 | tail -3)"
# seen WHERE: the marker as it is, in hexadecimal or in base64 is in what is read.
hex=$(printf '%s' "$marker" | od -An -tx1 | tr -d ' \n') base64=$(printf '%s' "$marker" | base64 -w0 | tr -d =)
patterns=(-e "$marker" -e "$hex" -e "${hex^^}" -e "${base64:0:36}")
nowhere() { ! grep -qaF "${patterns[@]}" || die "$1 has the secret"; }
for op in status config "ls" plan verify doctor "show $(newest_committed a)"; do
    # shellcheck disable=SC2086
    ask a --json $op >"$work/said.$op" 2>&1
done
(umask 077 && head -c 32 /dev/urandom >"$work/another")
settings=",\"token_file\":\"$work/another\""
begin 1
run_on a 0 --steps 4 # its refusal must not tell either
wait "${trainers[@]}" && die "another token was taken"
settings=",\"token_file\":\"$work/token\""
moment
old=$(agent_pid a)
kill -ABRT "$old"
new_agent() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$old" ]; }
wait_for 60 new_agent || die "the agent does not come back"
more_commits b 3 60 || die "no commits after the abort"
for pid in $(agent_pid a) $(keeper_pid a) $(agent_pid b) $(keeper_pid b); do
    nowhere "the command line of process $pid" <"/proc/$pid/cmdline"
    nowhere "the environment of process $pid" < <(cat "/proc/$pid/environ" 2>/dev/null)
done
kill_trainers # nothing is pruned while it is read
while IFS= read -r file; do
    [ "$file" = "$work/token" ] || nowhere "$file" < <(cat "$file" 2>/dev/null)
done < <(find "$work" -type f)
cores=$(find "$work" "$PWD" -maxdepth 6 -newer "$work/token" \( -name 'core' -o -name 'core.[0-9]*' \) -type f)
[ -z "$cores" ] || die "a core was left: $cores"
for fd in /proc/"$(keeper_pid a)"/fd/*; do
    [[ $(readlink "$fd") != /memfd:* ]] || nowhere "what is parked as $(readlink "$fd")" < <(head -c 64M "$fd" 2>/dev/null)
done
is_published() { compgen -G "$work/save/test/v*" >/dev/null; }
is_published || die "nothing was published to look at"
