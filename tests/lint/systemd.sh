#!/usr/bin/env bash
# The systemd unit keeps the memory for linger_s when the agent cannot start, and is well-formed: systemd.sh [TOP]
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
unit=deploy/systemd/tierckptd@.service
bad=0
complain() { printf '%s\n' "$*"; bad=1; }
value() { sed -nE "s/^$1=(.*)$/\1/p" "$unit"; }
linger_s=$(sed -nE 's/.*NUMBER\(linger_s,.*default_text = "([0-9]+)".*/\1/p' runtime/base/config.c)
restart_ms=$(value RestartSec | sed -nE 's/^([0-9]+)ms$/\1/p')
burst=$(value StartLimitBurst)
interval_s=$(($(value StartLimitIntervalSec | sed -nE 's/^([0-9]+)h$/\1/p') * 3600))
[ -n "$linger_s" ] && [ -n "$restart_ms" ] && [ -n "$burst" ] || { echo "the unit's limits, or linger_s, are not found"; exit 1; }
[ $((restart_ms * burst)) -ge $((linger_s * 1000)) ] || complain "the unit gives up after $((restart_ms * burst)) ms, sooner than linger_s ($linger_s s)"
# With so many starts in the interval it does give up in the end; a start that fails at once takes no more than a second.
[ "$interval_s" -ge $(((restart_ms + 1000) * burst / 1000)) ] || complain "the unit never gives up: $burst starts do not fit into $interval_s s"
[ "$(value Restart)" = on-failure ] || complain "the unit does not start the agent again"
[ "$(value FileDescriptorStoreMax)" -gt 0 ] || complain "the unit keeps no descriptors"
if command -v systemd-analyze >/dev/null; then
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' "$unit" >"$work/tierckptd@job.service"
    said=$(systemd-analyze verify --man=no "$work/tierckptd@job.service" 2>&1) || complain "systemd-analyze verify: $said"
else
    echo "systemd-analyze is not here: the unit's syntax was not checked"
fi
exit $bad
