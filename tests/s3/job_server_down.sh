#!/usr/bin/env bash
# The server is killed ($2: down), or answers nothing any more (hangs): training goes on, the ranks and status say what is wrong,
# starts restore from memory, and when it is back the next version is published.
. "$(dirname "$0")/jobs.sh" "$1"
. "$here/../cluster/storage_away.sh"
settings=$settings',"storage_timeout_ms":10000'
undrained='[0-9]' # a listing may be the first to fail
server=$S3_SERVER_PID
at_end() { # a server that this test has started
    [ "$server" = "$S3_SERVER_PID" ] || { builtin kill -9 "$server" && wait "$server"; } 2>/dev/null
}
answers() { bucket list >/dev/null 2>&1; }
if [ "$2" = down ]; then
    away='(onnect|HTTP 500|does not answer|has not answered)'
    storage_goes() {
        fault "the server is killed"
        builtin kill -9 "$server"
        while grep -qsa . "/proc/$server/cmdline"; do sleep 0.05; done
    }
    storage_returns() {
        eval "exec $S3_SERVER" >/dev/null 2>&1 &
        server=$!
        wait_for 60 answers || die "the server does not start again"
    }
else
    away='(does not answer|has not answered)'
    storage_goes() { kill -STOP "$server"; }
    storage_returns() { kill -CONT "$server"; }
fi
start
train_through
restart_meanwhile
kill_trainers
no_secret
