#!/usr/bin/env bash
# A second start of a job whose trainers are alive is refused on all its ranks and changes nothing for them, whichever
# node it comes from. Dead trainers do not block it, nor do those of the launcher's own previous launch. A start with
# takeover takes the job over; then the first one can no longer save, and its last step does not take the job back.
. "$(dirname "$0")/lib.sh" "$1"
run_id=""
terms_claimed() { cat "$work"/run/test/*/agent.log | grep -c 'claimed term' || true; }
refused() { # RANK
    grep -qE 'ERROR attach: .*held by a start whose trainers are alive: rank [01] of 2 is pid [0-9]+ on node [ab], since 20' \
        "$work/out.$launch.$1" || die "rank $1 of launch $launch was not refused so: $(out "$1" | tail -3)"
}
ended() { local pid; for pid in "${trainers[@]}"; do ! builtin kill -0 "$pid" 2>/dev/null || return 1; done; }
refused_start() { # WHICH
    begin 2
    run_on a "0" --launch 2 --steps 10
    run_on b "1" --launch 2 --steps 10
    wait_for 60 ended || die "$1 neither trains nor ends: $(out 0 | tail -3)"
    refused 0
    refused 1
}

# The first start.
begin 2
run_on a "0" --launch 1 --steps 100000 --step-ms 20
run_on b "1" --launch 1 --steps 100000 --step-ms 20
first=("${trainers[@]}")
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"

# A copy of it, on the same nodes.
fault "a second start"
refused_start "the second start"
grep -qE "pid ${first[0]} on node a" "$work/out.$launch.0" || die "it does not name the trainer: $(out 0)"
more_commits b 3 60 || die "the first start no longer commits"

# A copy of it with another runtime directory, as if XDG_RUNTIME_DIR were set for one of them only.
mkdir -m 700 "$work/elsewhere"
runtime_dir=$work/elsewhere
refused_start "the start with another runtime directory"
more_commits b 3 60 || die "the first start no longer commits"
runtime_dir=""

# An evaluation of one rank, on a node that has no agent of the job.
begin 1
run_on c "0" --launch 3 --steps 10 --done
wait_for 60 ended || die "the start on another node neither trains nor ends: $(out 0 | tail -3)"
refused 0
more_commits b 3 60 || die "the first start no longer commits"
[ "$(terms_claimed)" = 1 ] || die "a refused start has claimed a term"

# The trainers are killed, and the same start comes at once. It is given no run id.
newest=$(newest_committed b)
trainers=("${first[@]}")
kill_trainers
runtime_dir=$work/elsewhere
begin 2
run_on a "0" --launch 4 --steps 10
run_on b "1" --launch 4 --steps 10
wait_for 60 ended || die "a restart that does not find the memory neither trains nor ends: $(out 0 | tail -3)"
must_say 0 'ERROR attach: .*another agent of job test runs on node [ab], at .*: it has another runtime directory'
for node in a b; do # its agents
    for pid in $(pids_of "$work/elsewhere/test/$node/"); do builtin kill -9 "$pid"; done
done
runtime_dir=""
begin 2
run_on a "0" --launch 4 --steps $((newest + 400)) --step-ms 20 --save-last --done
run_on b "1" --launch 4 --steps $((newest + 400)) --step-ms 20 --save-last --done
old=("${trainers[@]}") old_launch=$launch
wait_for 60 said 0 '^RESTORED' || die "a restart after the trainers' death is refused: $(out 0 | tail -3)"
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"

# One that takes over, in the midst of it.
wait_for 60 commits_after 1 || die "the restart commits nothing: $(out 0 | tail -3)"
old_term=$(newest_term b)
begin 2
settings=',"takeover":"on"'
run_on a "0" --launch 5 --steps 100000 --step-ms 20
run_on b "1" --launch 5 --steps 100000 --step-ms 20
settings=""
fault "a takeover"
wait_for 60 commits_after "$old_term" || die "the start that takes over commits nothing: $(out 0 | tail -3)"
term=$(newest_term b)
old_out() { cat "$work/out.$old_launch.$1"; }
# Its saves say why they are not started; its last step fails and says who has the job; its end does not end the job.
old_ended() { local pid; for pid in "${old[@]}"; do ! builtin kill -0 "$pid" 2>/dev/null || return 1; done; }
wait_for 90 old_ended || die "the start that lost the job does not end: $(old_out 0 | tail -3)"
for rank in 0 1; do
    old_out "$rank" | grep -qE "^SKIPPED [0-9]+: another start of job test has taken it over with term $term \(rank 0 is pid ${trainers[0]} on node a" ||
        die "a save does not say who has the job: $(old_out "$rank" | grep SKIPPED | head -3)"
    old_out "$rank" | grep -qE '^ERROR save last: .*(another start of job test has taken it over|another start took the job over)' ||
        die "the last step does not say who has the job: $(old_out "$rank" | tail -3)"
done
[ "$(terms_claimed)" = 3 ] || die "the start that lost the job has claimed a term"
more_commits b 5 60 || die "the start that took over is disturbed: $(out 0 | tail -3)"
! compgen -G "$work/save/test/v*.t$old_term" >/dev/null || die "the start that lost the job has published"
newest=$(newest_committed b)
kill_trainers

# A launcher's own relaunch: its trainers may still be alive.
run_id=launcher
begin 2
run_on a "0" --launch 6 --steps 100000 --step-ms 20
run_on b "1" --launch 6 --steps 100000 --step-ms 20
wait_for 60 commits_after "$term" || die "no commit after the takeover: $(out 0 | tail -3)"
kill -STOP "${trainers[@]}"
stopped=("${trainers[@]}")
begin 2
run_on a "0" --launch 7 --steps $((newest + 20)) --done
run_on b "1" --launch 7 --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
builtin kill -9 "${stopped[@]}"
