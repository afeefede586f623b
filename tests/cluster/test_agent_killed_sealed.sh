#!/usr/bin/env bash
# A sealed snapshot commits even if the agent is killed with -9 before it knows of the seal. That holds if the trainer
# lives (it finds a dead socket, or its message is left unread in one) and if all agents and trainers die.
. "$(dirname "$0")/lib.sh" "$1"
held=$work/go
# seal_held STEP: rank 1 has sealed the step and tells no one; all other ranks' parts of it are there.
seal_held() {
    wait_for 60 said 1 "^HELD $1\$" || die "rank 1 does not come to step $1: $(out 1 | tail -3)"
    log_must_say a 60 "version 1\.$1 is protected"
    logged b "version 1\.$1 is protected" && die "node b knows of the seal of step $1"
    victim=$(agent_pid b)
}
new_agent() { local p; p=$(agent_pid b); [ -n "$p" ] && [ "$p" != "$victim" ]; }
committed() { log_must_say a 60 "version 1\.$1 is committed"; }

mem_interval=10
begin 2
run_on a "0" --steps 100000 --step-ms 50 --wait-commit
run_on b "1" --steps 100000 --step-ms 50 --wait-commit --hold-seal 20 --hold-file "$held"

seal_held 20 # the trainer lives, and finds a dead agent's socket when it wants to say so
kill -9 "$victim"
wait_for 60 new_agent || die "the agent did not come back"
touch "$held.20"
committed 20
wait_for 60 said 1 '^COMMITTED 20$' || die "the trainer did not learn that step 20 is committed: $(out 1 | tail -3)"

seal_held 40 # the agent is stopped: the message lies unread in its socket when it dies
kill -STOP "$victim"
touch "$held.40"
sleep 0.3 # for the message to be there; the test holds without it too
kill -9 "$victim"
wait_for 60 new_agent || die "the agent did not come back"
committed 40

seal_held 60 # the trainers are killed too, while no agent is there to see it, and so is the coordinator's agent
kill -STOP "$victim" "$(agent_pid a)"
kill_trainers
kill -9 "$victim" "$(agent_pid a)"
wait_for 60 new_agent || die "the agent did not come back"
committed 60
logged b 'version 1\.60 is protected' || die "node b did not take over the slot of step 60"

begin 2
run_on a "0" --steps 65 --done
run_on b "1" --steps 65 --done
all_end
for rank in 0 1; do
    [ "$(restored_step $rank)" = 60 ] || die "rank $rank restored step $(restored_step $rank), not 60"
    [ "$(restored_from $rank local)" -gt 0 ] || die "rank $rank was not restored from its own node: $(out $rank | grep RESTORED)"
done
