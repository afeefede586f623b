#!/usr/bin/env bash
# The command on a live job: every command ends with the right status and prints JSON on request. Intervals that are
# changed while training runs apply on all ranks, also in seconds.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"max_ckpt_num":2'
ask a status --wait >"$work/waited" &
waiting=$!
moment
[ ! -s "$work/waited" ] && builtin kill -0 $waiting || die "status --wait does not wait for the agent: $(cat "$work/waited")"
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
wait $waiting || die "status --wait ended with $?: $(cat "$work/waited")"
grep -q '^job test, node a, agent pid' "$work/waited" || die "status --wait says: $(cat "$work/waited")"

good() { # COMMAND...: ends with 0, in words and as JSON
    ask a "$@" >"$work/answer" || die "$*: ended with $?: $(cat "$work/answer")"
    ask a --json "$@" >"$work/answer" || die "--json $*: ended with $?: $(cat "$work/answer")"
    is_json <"$work/answer" || die "--json $*: no JSON: $(cat "$work/answer")"
}
bad() { # STATUS COMMAND...
    local wanted=$1 got=0
    shift
    ask a "$@" >"$work/answer" 2>&1 || got=$?
    [ $got = "$wanted" ] || die "$*: ended with $got instead of $wanted: $(cat "$work/answer")"
}
good status
good plan
good verify memory
good drain --wait
good verify
ask a verify published | grep -q 'no agent answers' && die "verify published says that no agent answers, and one does"
good ls
good prune --dry-run --keep 1
good config
good tune
ask a tune | grep -Eq '^save_mem_interval +[0-9]+ +every ' || die "tune: $(ask a tune)"
interval() { ask a --json tune "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["save_mem_interval"])'; }
[ "$(interval --node-mtbf 1000000 --process-mtbf 1000000)" -gt "$(interval --node-mtbf 1 --process-mtbf 1)" ] ||
    die "failures do not count: $(ask a tune --node-mtbf 1)"
[ "$(ask a --json tune | python3 -c 'import json, sys; print(json.load(sys.stdin)["copies"])')" = 2 ] ||
    die "another number of copies: $(ask a --json tune)"
ask a tune | grep -q '^copies = 2 is right' || die "tune: $(ask a tune)"
bad 2 tune --node-mtbf 0
bad 2 tune --all-mtbf 0
bad 2 report run.html
grep -q 'report is a part of the Python package' "$work/answer" || die "report: $(cat "$work/answer")"
bad 2 tune --node-mtbf often
bad 2 doctor --node-mtbf 4
ask a --json doctor | is_json || die "doctor: no JSON"
grace='^(good|BAD) *time to end *the fastest drain took ([0-9]+) s: grace_s, which is 20, has to be at least ([0-9]+),.*'
read -r verdict drain least < <(ask a doctor | sed -nE "s/$grace/\1 \2 \3/p")
[ "${drain:-0}" -ge 1 ] && [ "$least" = $((2 * drain)) ] && [ "$verdict" = "$([ "$least" -le 20 ] && echo good || echo BAD)" ] ||
    die "doctor: $(ask a doctor)"
published=$(ask a --json ls | python3 -c 'import json,sys; print(json.load(sys.stdin)["published"][0]["version"]["step"])')
[ "$published" -gt 0 ] || die "ls names no published version"
bad 1 show 999999
bad 2 show newest
bad 2 no-such-command
bad 2 verify --step 4
bad 2 status nonsense
bad 1 config --set block_time_ms=5
bad 1 config --set save_mem_interval=often

good config --set save_mem_interval=5
[ "$(ask a --json config | python3 -c 'import json,sys; print(json.load(sys.stdin)["save_mem_interval"])')" = 5 ] ||
    die "config does not show the value in force"
ask a config | grep -q 'THE FILE SAYS 2' || die "config does not say that the file has another value"
log_must_say a 60 'save_mem_interval is now 5, from step'
from=$(sed -nE 's/.*save_mem_interval is now 5, from step ([0-9]+) on$/\1/p' "$(agent_log a)" | tail -1)
[ "$from" -gt 0 ] || die "the log does not say from which step on"
well_beyond() { [ "$(newest_committed b)" -ge $((from + 20)) ]; }
wait_for 60 well_beyond || die "no commits after the interval changed"
committed_steps b | while read -r step; do
    [ "$step" -lt "$from" ] || [ $((step % 5)) = 0 ] || die "step $step was committed at an interval of 5"
done || exit 1
ask a config --set save_mem_interval=500ms >/dev/null 2>&1 || ask a config --set save_mem_interval=0.5s >/dev/null ||
    die "an interval in seconds is refused"
more_commits b 3 60 || die "no commits at an interval in seconds"

# stop: refused while trainers live, and while memory alone has something; then the agents of all nodes leave.
bad 1 stop
grep -q 'trainers of job test run on node a' "$work/answer" || die "stop beside trainers says: $(cat "$work/answer")"
kill_trainers
refused_for_memory() { ! ask b stop >"$work/answer" 2>&1 && grep -q 'is only in memory and would be lost' "$work/answer"; }
wait_for 60 refused_for_memory || die "stop says of what memory alone has: $(cat "$work/answer")"
good_drain() { ask b drain --wait >"$work/answer" 2>&1; }
wait_for 60 good_drain || die "drain before stop: $(cat "$work/answer")"
wait_for 60 ask b stop >"$work/answer" 2>&1 || die "stop after a drain: $(cat "$work/answer")"
gone() { no_agent a && no_agent b; }
wait_for 60 gone || die "agents are there after stop: $(tail -2 "$(agent_log a)" "$(agent_log b)")"

# One node: that there is no second copy is said, and is no warning. With force its agent leaves under a trainer.
settings='' storage_interval=0 job=alone
begin 1
run_on c "0" --steps 100000 --step-ms 20
wait_for 60 has_commits c 1 || die "no commit: $(out 0 | tail -3)"
ask c status >"$work/answer" || die "status of one node ended with $?: $(cat "$work/answer")"
grep -q '^one node: ' "$work/answer" || die "status does not say that there is one node: $(cat "$work/answer")"
! grep -q 'WARNING' "$work/answer" || die "status of one node warns: $(cat "$work/answer")"
ask c stop --force >"$work/answer" || die "stop --force: $(cat "$work/answer")"
grep -q 'though 1 trainers' "$work/answer" || die "stop --force does not say what is lost: $(cat "$work/answer")"
grep -Eq '^version [0-9]+\.[0-9]+, which is only in memory, is discarded$' "$work/answer" ||
    die "stop --force does not name the version that is lost: $(cat "$work/answer")"
wait_for 60 no_agent c || die "the agent is there after stop --force"
kill_trainers

# Two nodes in one domain, and two copies wanted in distinct ones: that is a warning, and no good answer.
settings=',"domain":"rack"' job=rack
begin 2
run_on d "0" --steps 100000 --step-ms 20
run_on e "1" --steps 100000 --step-ms 20
wait_for 60 has_commits d 1 || die "no commit: $(out 0 | tail -3)"
bad 0 config
ask d status >"$work/answer" && die "status with copies in one domain ended well: $(cat "$work/answer")"
grep -q 'WARNING: .* fewer copies in distinct domains' "$work/answer" || die "status does not warn of copies: $(cat "$work/answer")"
kill_trainers

# Without a job: config and doctor answer for the defaults, the others say what they need.
nowhere() { # COMMAND...: where no agent is known
    env -u TIERCKPT_CONFIG TIERCKPT_RUNTIME_DIR="$work/empty" "$bin/tierckpt" "$@"
}
nowhere config | grep -q '^slots = 3$' || die "config without a job does not show the defaults"
nowhere --json config | is_json || die "config without a job: no JSON"
# torchrun that does not restart trainers is a fault, unless a script of Slurm can start it again.
verdict() { env "${@:2}" TORCHELASTIC_RUN_ID=1 TORCHELASTIC_MAX_RESTARTS="$1" "$bin/tierckpt" --config "$work/a.json" doctor | sed -nE 's/^(\w+) +torchrun restarts .*/\1/p'; }
[ "$(verdict 0 -u SLURM_JOB_ID) $(verdict 3 -u SLURM_JOB_ID) $(verdict 0 SLURM_JOB_ID=1)" = 'BAD good note' ] ||
    die "doctor: torchrun restarts: $(verdict 0 -u SLURM_JOB_ID) $(verdict 3 -u SLURM_JOB_ID) $(verdict 0 SLURM_JOB_ID=1)"
nowhere --json doctor | python3 -c 'import json,sys; assert len(json.load(sys.stdin)["checks"]) > 4' || die "doctor without a job has no checks"
nowhere status 2>"$work/answer" && die "status without a job ended well"
grep -q 'no agent is known on this node .*--config FILE' "$work/answer" || die "status says: $(cat "$work/answer")"
nowhere --job x config 2>"$work/answer" && die "config of a job that is not known ended well"
grep -q 'no agent of job x is known' "$work/answer" || die "config --job x says: $(cat "$work/answer")"

# A job that has published nothing has no versions, and that is a good answer.
none() { # WHAT SAVE_DIR
    nowhere --config-json "{\"job\":\"none\",\"save_dir\":\"$2\"}" ls >"$work/answer" || die "$1: ls ended with $?: $(cat "$work/answer")"
    grep -q 'no versions' "$work/answer" || die "$1: ls says: $(cat "$work/answer")"
    nowhere --config-json "{\"job\":\"none\",\"save_dir\":\"$2\"}" --json ls |
        python3 -c 'import json,sys; assert json.load(sys.stdin)["published"] == []' || die "$1: no empty list"
}
none "nothing published" "$work/save"
nowhere --config-json "{\"job\":\"none\",\"save_dir\":\"$work/save2\"}" ls 2>"$work/answer" && die "ls of a missing save_dir ended well"
grep -q "save_dir $work/save2 does not exist" "$work/answer" || die "ls of a missing save_dir says: $(cat "$work/answer")"
[ ! -e "$work/save2" ] || die "ls has made save_dir"
nowhere --config-json "{\"job\":\"none\",\"save_dir\":\"$work/no/mount\"}" ls 2>"$work/answer" && die "ls below a missing mount ended well"
grep -q "$work/no is not there" "$work/answer" || die "ls below a missing mount says: $(cat "$work/answer")"
