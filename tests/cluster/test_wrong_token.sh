#!/usr/bin/env bash
# A node and a client with another token than the job's are refused with an error that says so; those with the right one
# go on.
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
