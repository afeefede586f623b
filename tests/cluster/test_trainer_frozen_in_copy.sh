#!/usr/bin/env bash
# A trainer is frozen in the middle of its copy, others take its job over on the same node, and later it continues to
# write, but not into one of their slots. The agent that is restarted meanwhile knows the slot, too. With too few slots
# left, saves are refused by a message that names the process and training continues; so do saves once the process has
# ended.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=1
settings=',"takeover":"on"' # the frozen trainer is alive
options=(--count $((8 << 20)) --step-ms 25 --lockstep) # 128 MiB a rank and step
slots() { python3 "$(dirname "$0")/slots.py" "$work/run/$job/b/agent.sock"; }
filling() { slots | grep -q '^filling'; }
quarantined() { slots | grep -q "^quarantined"; }
no_quarantine() { ! quarantined; }
start() { # LAUNCH
    begin 2
    run_on a "0" --launch "$1" --steps 100000 "${options[@]}"
    run_on b "1" --launch "$1" --steps 100000 "${options[@]}" --freeze-file "$work/freeze"
}
# freeze_in_copy: rank 1 stands still with a slot of it half written, and rank 0 is gone.
stands_still() { grep -q '^State:.T' "/proc/${trainers[1]}/status"; }
freeze_in_copy() {
    local tries
    for tries in $(seq 20); do
        touch "$work/freeze"
        wait_for 60 stands_still || die "the trainer was never frozen: $(out 1 | tail -3)"
        sleep 0.05 # for a seal on its way
        if filling; then
            fault "frozen in its copy"
            frozen=${trainers[1]}
            builtin kill -9 "${trainers[0]}"
            return
        fi
        builtin kill -CONT "${trainers[1]}"
    done
    die "it was never found in a copy in $tries tries"
}
takes_over() { # LAUNCH
    newest=$(newest_committed b)
    start "$1"
    wait_for 60 said 1 '^(RESTORED|FRESH|ERROR)' || die "launch $1: no restore: $(out 1 | tail -3)"
    [ "$(restored_step 1)" -ge "$newest" ] || die "launch $1 restored $(restored_step 1), but $newest was committed"
    ! said 1 '^WRONG' || die "launch $1: $(out 1 | grep WRONG)"
    wait_for 60 quarantined || die "launch $1: the frozen trainer's slot is not in quarantine: $(slots)"
}
no_damage() { ask b verify >"$work/verify" 2>&1 || die "$(cat "$work/verify")"; }

start 1
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
freeze_in_copy
takes_over 2
more_commits b 6 60 || die "a slot in quarantine ends the commits: $(out 1 | tail -3)"
quarantined || die "the slot was given away while the frozen trainer may write there"
wait_for 60 logged b "process $frozen, which was rank 1 of term 1, is still alive: end it" || die "the log of b does not name the frozen process"
ask b status | grep -q "WARNING: slot .* process $frozen, which was rank 1 of term 1" || die "status does not name the frozen process"
kill -9 "$(agent_pid b)"
more_commits b 3 60 || die "no commits after the agent was started again"
quarantined || die "the agent that was started again gives the slot away"
kill -CONT "$frozen"
wait_for 60 no_quarantine || die "the trainer has copied everything, and its slot stays in quarantine: $(slots)"
more_commits b 6 60 || die "no commits after the frozen trainer went on"
no_damage
builtin kill -9 "$frozen" 2>/dev/null

freeze_in_copy
takes_over 3
kill -9 "$frozen"
wait_for 60 no_quarantine || die "the process has ended, and its slot stays in quarantine"
more_commits b 3 60 || die "no commits after the frozen trainer has ended"
no_damage
kill_trainers

settings="$settings"',"slots":2'
job=few
start 1
wait_for 60 has_commits b 3 || die "no commit with two slots: $(out 0 | tail -3)"
freeze_in_copy
takes_over 2
log_must_say b 60 "refused: no free slot: what an earlier start has begun.*process $frozen, which was rank 1 of term 1"
steps() { grep -c '^STEP' "$work/out.$launch.1"; }
before=$(steps)
trains_on() { [ "$(steps)" -gt $((before + 20)) ]; }
wait_for 60 trains_on || die "training does not go on: $(out 1 | tail -3)"
kill -9 "$frozen"
more_commits b 3 60 || die "no commits after the frozen trainer has ended"
no_damage
