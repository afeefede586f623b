#!/usr/bin/env bash
# All trainers of a launch stand still, another launch takes the job over, and then they continue: they are refused,
# nothing of theirs is committed or published, and the new trainers are not disturbed.
. "$(dirname "$0")/lib.sh" "$1"
storage_interval=10
begin 2
run_on a "0" --launch 1 --steps 100000 --step-ms 20 --lockstep
run_on b "1" --launch 1 --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
moment
kill -STOP "${trainers[@]}"
zombies=("${trainers[@]}")
newest=$(newest_committed b)
begin 2
run_on a "0" --launch 2 --steps 100000 --step-ms 20 --lockstep
run_on b "1" --launch 2 --steps 100000 --step-ms 20 --lockstep
wait_for 60 commits_after 1 || die "the second launch does not commit: $(out 0 | tail -3)"
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
before=$(grep -cE 'version 1\.[0-9]+ is committed' "$(agent_log b)")
old=$(sed -nE 's/.*version 1\.([0-9]+) is committed$/\1/p' "$(agent_log b)" | tail -1) # also what was on its way then
term=$(newest_term b) claimed=$(grep -c 'claimed term' "$(agent_log a)")
steps() { grep -c '^STEP' "$work/out.1.$1"; }
steps_before=$(steps 0)
moment
builtin kill -CONT "${zombies[@]}"
on_they_go() { [ "$(steps 0)" -gt $((steps_before + 50)) ] || ! builtin kill -0 "${zombies[0]}" 2>/dev/null; }
wait_for 60 on_they_go || die "the former trainers neither go on nor end: $(tail -3 "$work/out.1.0")"
more_commits b 10 60 || die "the new launch is disturbed: $(out 0 | tail -3)"
[ "$(grep -cE 'version 1\.[0-9]+ is committed' "$(agent_log b)")" = "$before" ] || die "a version of the old term was committed"
[ "$(grep -c 'claimed term' "$(agent_log a)")" = "$claimed" ] || die "the former trainers formed a term"
is_published() { compgen -G "$work/save/test/v*.t$term" >/dev/null; }
wait_for 60 is_published || die "nothing of the new term is published"
for dir in "$work"/save/test/v*.t1; do
    [ ! -d "$dir" ] || [ "$((10#$(basename "$dir" .t1 | tr -d v)))" -le "$old" ] || die "published after its term: $dir"
done
builtin kill -9 "${zombies[@]}" 2>/dev/null
newest=$(newest_committed b)
kill_trainers
begin 2
run_on a "0" --launch 3 --steps $((newest + 20)) --done
run_on b "1" --launch 3 --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
