#!/usr/bin/env bash
# A supervisor dies before its first agent is up: the trainers that wait for that agent notice and start another one.
. "$(dirname "$0")/lib.sh" "$1"
program=$(readlink -f "$bin/tierckptd")
rm "$bin/tierckptd"
# The first agent is one that does not even begin when its supervisor dies.
cat >"$bin/tierckptd" <<EOF
#!/bin/sh
if mkdir "$work/died" 2>/dev/null; then
    kill -9 \$PPID
    exit 1
fi
exec "$program" "\$@"
EOF
chmod +x "$bin/tierckptd"
fault "supervisor killed before its first agent is up"
begin 2
run_on a "0 1" --twins 2 --steps 10 --wait-commit
all_end
[ -d "$work/died" ] || die "the first supervisor was not killed"
newest=$(newest_commit)
[ "$newest" = 10 ] || die "step $newest is the newest committed"
[ -n "$(supervisor_pid a)" ] || die "there is no supervisor"
begin 2
run_on a "0 1" --twins 2 --steps 14 --done
all_end
[ "$(restored_step 0)" = 10 ] || die "restored $(restored_step 0)"
