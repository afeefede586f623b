#!/usr/bin/env bash
# One failpoint: two nodes save, drain, restore from memory, lose a node, lose both, until it has been hit; what was
# committed is still there, bit for bit, and commits continue: failpoint.sh BUILD [again:]NAME=ACTION[@N]
# With "again:" it is armed only when there is something to lose, and both agents are then killed, so that it is hit while
# they resume. Further failpoints after a semicolon may be hit at any time.
. "$(dirname "$0")/lib.sh" "$1"
case=$2 spec=${2#again:}
name=${spec%%=*}
"$bin/tierckptd" --failpoints >/dev/null 2>&1 || skip "built without failpoints: -DTCK_FAILPOINTS=ON"
storage_interval=4
settings=',"max_ckpt_num":2,"version_timeout_ms":5000,"session_wait_ms":5000,"slots":3'
mkdir "$work/fired"
export TIERCKPT_FAILPOINT_DIR=$work/fired TIERCKPT_FAILPOINTS=$spec
at_end() { [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP/$case" && cp -r "$work/run" "$work"/out.* "$work/save" "$KEEP/$case/" 2>/dev/null; }; }
newest=0 published=0 steps=0
size=()

# Points that an agent passes only after another one has died, or when something published is damaged.
case $name in
restore.spread*) settings=$settings',"restore_spread":"oob"' ;;
repair.*) settings=$settings',"scrub_storage_interval_s":1' ;;
object.*) size=(--count 3000000) ;; # shards of more than one part
comeback.* | resume.* | supervisor.agent_died) TIERCKPT_FAILPOINTS="copy.acked=kill@2;$spec" ;;
esac
fired() { [ -s "$work/fired/$name" ]; } # an empty one holds it back
come() { find "$work/fired" -type f -size +0 -printf '%f\n'; }
come_new() { comm -13 <(sort <<<"$1") <(come | sort); }
fired_in() { cat "$work/fired/$name" 2>/dev/null; }

# ---- one launch ------------------------------------------------------------------------------------------------------

# As a launcher does: when one rank has failed the others are ended. They must not hang either.
join_trainers() {
    local end=$((SECONDS + 120)) left=("${trainers[@]}") still pid
    ended_well=yes
    while [ ${#left[@]} -gt 0 ]; do
        still=()
        for pid in "${left[@]}"; do
            if kill -0 "$pid" 2>/dev/null; then
                still+=("$pid")
            elif ! wait "$pid" 2>/dev/null; then
                ended_well=no
            fi
        done
        left=("${still[@]}")
        [ $ended_well = yes ] || break
        [ $SECONDS -lt $end ] || die "$name: a rank hangs: $(tail -n 2 "$work"/out."$launch".*)"
        sleep 0.05
    done
    [ $ended_well = yes ] || kill_trainers
}

# What holds in every launch: what is restored is one version, right to the bit, and not older than what was committed.
check_restored() { # NEWEST
    local rank step
    for rank in 0 1; do
        ! said $rank '^WRONG' || die "$name: rank $rank: $(out $rank | grep WRONG)"
        ! said $rank '^FRESH' || [ "$1" = 0 ] || die "$name: rank $rank starts from scratch, but $1 was committed"
        step=$(restored_step $rank)
        [ -z "$step" ] || [ "$step" -ge "$1" ] || die "$name: rank $rank restored $step, but $1 was committed"
    done
    [ -z "$(restored_step 0)" ] || [ -z "$(restored_step 1)" ] || [ "$(restored_step 0)" = "$(restored_step 1)" ] ||
        die "$name: ranks restored $(restored_step 0) and $(restored_step 1)"
}
note_newest() {
    local step
    step=$(sed -nE 's/^COMMITTED ([0-9]+)$/\1/p' "$work"/out."$launch".* | sort -n | tail -1)
    newest=$((${step:-0} > newest ? ${step:-0} : newest))
    step=$(sed -nE 's/^DRAINED ([0-9]+)$/\1/p' "$work"/out."$launch".* | sort -n | tail -1)
    published=$((${step:-0} > published ? ${step:-0} : published))
}
# Nothing may come in between when what was to come has come before, or does not come here.
check_went_on() { # NEWEST BEFORE
    [ $ended_well = yes ] || die "$name: $2: a trainer failed: $(grep -hE 'ERROR|EXIT' "$work"/out."$launch".* | head -2)"
    [ "$newest" -gt "$1" ] || die "$name: $2: no commit after step $1: $(tail -n 3 "$work"/out."$launch".*)"
}

# train FLOOR: eight steps more; the restored version must not be older than FLOOR.
train() {
    local before=$newest old new
    old=$(come)
    steps=$((steps + 8))
    begin 2
    run_on a 0 --twins 2 "${size[@]}" --steps $steps --lockstep --wait-commit --wait-drained
    run_on b 1 --twins 2 "${size[@]}" --steps $steps --lockstep --wait-commit --wait-drained
    join_trainers
    check_restored "$1"
    note_newest
    new=$(come_new "$old")
    if [ -z "$new" ]; then
        check_went_on "$before" "$(fired && echo "after it had come" || echo "before it came")"
    elif survives "$new" && [ $ended_well = no ]; then
        die "$name: a trainer failed with its agent: $(grep -hE 'ERROR|EXIT' "$work"/out."$launch".* | head -2)"
    fi
}

# Deaths and errors of an agent that trainers do not notice: those while it works on what they have saved; and deaths
# while they are on their way into a term, as they ask its successor again.
survives() { # WHAT-CAME
    [ "$(wc -l <<<"$1")" = 1 ] || return 1
    case $(tr ';' '\n' <<<"$spec" | grep -F -- "$1=") in
    term.*=kill* | object.claim*=kill* | segment.*=kill* | enrol.[af]*=kill* | agent.*=kill*) return 0 ;;
    esac
    case ${1%.*} in
    digest | copy | ready | commit | drain | stage | object | publish | prune | uring | audit) ! said 0 '^RESTORED' ;;
    *) false ;;
    esac
}

# ---- the way through all states --------------------------------------------------------------------------------------

lose() { local node; for node in "$@"; do kill_node "$node"; done; }
settle() { wait_for 2 fired || true; } # what comes after the trainers have ended
# Of the newest published version, which is in memory, too. It is rewritten whatever happens in between.
damage_and_repair() {
    local file
    file=$(find "$work"/save/test/v* -name '*.safetensors' | sort | tail -1)
    printf 'damaged!' | dd of="$file" bs=1 seek=200001 conv=notrunc status=none
    wait_for 60 fired || die "$name: never hit: $(tail -n 3 "$(agent_log a)" "$(agent_log b)")"
    wait_for 60 ask a verify published >"$work/verify" || die "$name: $file is not repaired: $(cat "$work/verify")"
}

mapfile -t names < <(tr ';' '\n' <<<"$spec" | sed 's/=.*//')
[ "$spec" = "$case" ] || touch "${names[@]/#/$work/fired/}"
train 0
if [ "$spec" != "$case" ]; then
    rm "${names[@]/#/$work/fired/}"
    kill -9 $(agent_pid a) $(agent_pid b)
    wait_for 5 fired || true
elif [[ $case = header.page=corrupt* ]]; then # only the next agent looks at it
    kill -9 $(agent_pid a) $(agent_pid b)
fi
case $name in
repair.*) damage_and_repair ;;
esac
fired || settle
if ! fired; then
    train "$newest"
    settle
fi
if ! fired; then
    lose b
    train "$newest"
    settle
fi
if ! fired; then
    lose a b
    train "$published"
fi
fired || die "$name: never hit"
echo "$case came in launch $launch (pid $(fired_in)), $newest committed, $published published"
old=$(come)
train "$newest"
[ -z "$(come_new "$old")" ] || train "$newest" # after the last of them all has to go well
lose a b
ask a verify published >"$work/verify" || die "$name: what is published is damaged: $(cat "$work/verify")"
train "$published"
