#!/usr/bin/env bash
# A node and a client whose token is not the job's, or no longer is, are refused with an error that says so, however
# often they come. This changes nothing, and the log stays short. Those with the right token continue.
. "$(dirname "$0")/lib.sh" "$1"
for name in right wrong; do (umask 077 && head -c 32 /dev/urandom >"$work/$name"); done
with_token() { settings=",\"token_file\":\"$work/$1\""; }

with_token right
begin 1
run_on a "0" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
running=("${trainers[@]}")

moment
with_token wrong
fault "a client with another token"
begin 1
run_on a "0" --steps 4
wait "${trainers[0]}" && die "a client with the wrong token was taken"
must_say 0 '^ERROR attach: .*token'
more_commits a 3 60 || die "the training that runs was disturbed"

# Again and again, also after the token's file has changed under the agent: what it has read counts.
state() { ask a --json status | python3 -c 'import json,sys; s=json.load(sys.stdin); print(s["term"], s["pid"], s["memory"]["segments"])'; }
refusals() { grep -c 'HELLO of pid .* refused' "$(agent_log a)"; }
with_token right
before=$(state)
claims() { grep -L '"reserved_by"' "$work"/save/test/term.* | wc -l; }
wait_for 60 has_reserved a 4 || die "no terms are reserved for later starts"
terms=$(claims)
said_before=$(refusals)
mv "$work/right" "$work/expired"
(umask 077 && head -c 32 /dev/urandom >"$work/right")
fault "clients with a token that is not the agent's, 40 times"
for ((i = 0; i < 20; i++)); do
    for token in right wrong; do
        with_token $token
        begin 1
        run_on a "0" --steps 4
        wait "${trainers[0]}" && die "a client with another token than the agent's was taken"
        must_say 0 '^ERROR attach: .*token'
    done
done
mv "$work/expired" "$work/right"
with_token right
[ "$(state)" = "$before" ] || die "the agent's state was '$before' and is '$(state)'"
[ "$(claims)" = "$terms" ] || die "a refused client has claimed a term"
[ $(($(refusals) - said_before)) -lt 20 ] || die "the log has a line for each of those who were refused"
more_commits a 3 60 || die "the training that runs was disturbed by many"
kill -9 "${running[@]}"

begin 2
with_token right
run_on a "0" --steps 1000 --step-ms 20
with_token wrong
fault "a node with another token"
run_on b "1" --steps 1000 --step-ms 20
log_must_say a 60 '(refused|no session|node b).*(secret|token|proof)'
sleep 2
! logged b 'is committed' || die "a node with the wrong token committed"
