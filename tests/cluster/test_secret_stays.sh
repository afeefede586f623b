#!/usr/bin/env bash
# The job's secret, a token of our own that contains a marker, appears nowhere: in no log, status, argument,
# environment, published or parked file, and an agent that aborts leaves no core. The same holds for the key derived
# from it, and for a secret that the job has created itself.
. "$(dirname "$0")/lib.sh" "$1"
(umask 077 && : >"$work/token")
# A token whose SHA-256, the key, has no byte that a log or a shell would write in another way.
marker=$(python3 -c 'import hashlib, os
while True:
    token = "CANARY" + os.urandom(13).hex()
    if all(32 <= byte < 127 or byte > 127 for byte in hashlib.sha256(token.encode()).digest()):
        break
print(token)')
printf '%s' "$marker" >"$work/token"
settings=",\"token_file\":\"$work/token\""
storage_interval=4
ulimit -c unlimited 2>/dev/null
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 6 || die "no commit: $(out 0 | tail -3)"
# forms SECRET: it and its key as they are, in hexadecimal and in base64. nowhere WHERE: none of that is in what is read.
forms() { python3 -c 'import base64, hashlib, sys
for secret in sys.argv[1].encode(), hashlib.sha256(sys.argv[1].encode()).digest():
    for form in secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)[:36]:
        sys.stdout.buffer.write(form + b"\n")' "$1"; }
forms "$marker" >"$bin/forms"
nowhere() { ! LC_ALL=C grep -qaF -f "$bin/forms" || die "$1 has the secret"; }
for op in status config "ls" plan verify doctor "show $(newest_committed a)"; do
    # shellcheck disable=SC2086
    ask a --json $op >"$work/said.$op" 2>&1
done
(umask 077 && head -c 32 /dev/urandom >"$work/another")
settings=",\"token_file\":\"$work/another\""
begin 1
run_on a 0 --steps 4 # its refusal must not tell either
none_ends_well "another token was taken"
settings=",\"token_file\":\"$work/token\""
moment
old=$(agent_pid a)
kill -ABRT "$old"
new_agent() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$old" ]; }
wait_for 60 new_agent || die "the agent does not come back"
more_commits b 3 60 || die "no commits after the abort"
for pid in $(agent_pid a) $(supervisor_pid a) $(agent_pid b) $(supervisor_pid b); do
    nowhere "the command line of process $pid" <"/proc/$pid/cmdline"
    nowhere "the environment of process $pid" < <(cat "/proc/$pid/environ" 2>/dev/null)
done
is_published() { compgen -G "$work/save/test/v*" >/dev/null; }
wait_for 60 is_published || die "nothing was published to look at"
kill_trainers # nothing is pruned while it is read
while IFS= read -r file; do
    nowhere "$file" < <(cat "$file" 2>/dev/null)
done < <(find "$work" -type f ! -path "$work/token" ! -path "$bin/forms")
cores=$(find "$work" "$PWD" -maxdepth 6 -newer "$work/token" \( -name 'core' -o -name 'core.[0-9]*' \) -type f)
[ -z "$cores" ] || die "a core was left: $cores"
for fd in /proc/"$(supervisor_pid a)"/fd/*; do
    [[ $(readlink "$fd") != /memfd:* ]] || nowhere "what is parked as $(readlink "$fd")" < <(head -c 64M "$fd" 2>/dev/null)
done

settings="" job=made
begin 1
run_on c 0 --steps 8 --wait-commit
all_end
made=$(tr -d '\n' <"$work/save/made/secret")
[ ${#made} -ge 64 ] || die "the job has made no secret"
kill_node c
! grep -rlaiF "$made" "$work" --exclude=secret || die "the secret that the job made is in there"
