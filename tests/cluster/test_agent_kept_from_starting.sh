#!/usr/bin/env bash
# A fault that only keeps the agent from starting never costs the memory: save_dir is missing, then the secret cannot
# be read, each for more deaths in a row than a supervisor without memory allows. status says why, and how long the
# memory is kept. Then the job continues from memory.
. "$(dirname "$0")/lib.sh" "$1"
printf 'a%.0s' {1..64} >"$work/token"
chmod 600 "$work/token"
linger_s=600
mem_interval=1
settings=",\"token_file\":\"$work/token\""
begin 1
run_on a 0 --steps 8 --wait-commit
all_end
supervisor=$(supervisor_pid a)
deaths() { grep -c 'exited with status 1$' "$work/run/test/a/supervisor.log"; }
dies_often() { [ "$(deaths)" -ge $((dead + $1)) ]; }
# kept_out WHAT: kills the agent, which then cannot start.
kept_out() {
    dead=$(deaths)
    kill -9 "$(agent_pid a)"
    wait_for 400 dies_often "$2" || die "$1: the agent died $(($(deaths) - dead)) times only"
    [ "$(supervisor_pid a)" = "$supervisor" ] || die "$1: the supervisor has given up, and the memory with it"
    ask a status >"$work/said" 2>&1 && die "$1: status is good without an agent"
    grep -qE "the agent cannot start \([0-9]+ times so far\): .*$3" "$work/said" || die "$1: status does not say why: $(cat "$work/said")"
    grep -qE 'keeps the memory of 1 segments for [0-9]+ s more' "$work/said" || die "$1: status does not say how long: $(cat "$work/said")"
}
fault "save_dir is away"
mv "$work/save" "$work/moved"
touch "$work/save"
kept_out "save_dir away" 21 "save_dir $work/save"
error_file=$work/run/test/a/agent.error
cp "$error_file" "$work/old.error"
dead=$(deaths)
wait_for 60 dies_often 1 || die "the supervisor does not try again"
rm "$work/save"
mv "$work/moved" "$work/save"
# The supervisor pauses for seconds now. What the attempt before said stays where a start could read it all that time.
at_end() { touch "$work/restored"; }
while [ ! -e "$work/restored" ]; do [ -e "$error_file" ] || cp "$work/old.error" "$error_file"; sleep 0.02; done 2>/dev/null &
says_it_again=$!
begin 1
run_on a 0 --steps 9 --wait-commit
all_end
at_end
wait "$says_it_again"
rm -f "$error_file"
[ "$(restored_step 0)" = 8 ] || die "restored $(restored_step 0) instead of 8"
serves() { ask a status >/dev/null 2>&1; }
wait_for 60 serves || die "no agent though save_dir is back"
fault "the secret cannot be read"
mv "$work/token" "$work/elsewhere"
kept_out "secret away" 3 "$work/token"
mv "$work/elsewhere" "$work/token"
wait_for 60 serves || die "no agent though the secret is back"
[ ! -e "$work/run/test/a/supervisor.waits" ] || die "the supervisor still says that it waits"
begin 1
run_on a 0 --steps 10
all_end
[ "$(restored_step 0)" = 9 ] || die "restored $(restored_step 0) instead of 9"
[ "$(restored_from 0 local)" -gt 0 ] || die "not from memory"
