#!/usr/bin/env bash
# Storage that takes ten seconds to answer the first time delays the start of a job and does not make it fail.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
begin 1
fault "storage is slow to answer at first"
stop_serving
run_on a 0 --steps 4 --wait-commit
sleep 10
said 0 '^STEP' && die "a start that did not wait for storage"
kill -CONT "$server"
all_end
