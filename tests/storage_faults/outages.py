# SPDX-License-Identifier: Apache-2.0
"""Storage that is away, as a whole or in part, from one moment to another, instead of by chance."""

from dataclasses import dataclass

from lying import CALLS, Lies


@dataclass(frozen=True)
class Outage:
    """`lies` None: no call comes back. `reason` is what errors say of it. `restart` is what becomes of trainers that are
    started meanwhile: True, they restore from memory; False, they do if terms were reserved for that; None, they may
    do either."""

    name: str
    lies: Lies | None
    reason: str
    restart: bool | None

    def begin(self, storage):
        if self.lies is None:
            storage.freeze()
        else:
            storage.lie(self.lies)


def _away(kind, reason, only="", restart=False, calls=CALLS, hang_ms=0):
    where = f"what has {only!r} in its path" if only else "all"
    return Outage(f"{kind} of {where}", Lies((kind,), 1000, calls, only, "", hang_ms), reason, restart)


# A term is claimed by making a file. While none can be made, those are left that were reserved before.
WHOLE = (Outage("hang of all", None, "does not answer", False),
         _away("EROFS", "Read-only file system"),
         _away("ESTALE", "Stale file handle"))

# Where drains write, and what is published. Files alone hang: a name that is looked up, made or moved holds a lock which a
# publish may wait for with the lock of the directory in which terms are claimed.
FILES = ("open", "read", "write", "list", "sync")
PART = (_away("HANG", "does not answer", "stage/", True, FILES, 30000),
        _away("EROFS", "Read-only file system", "stage/", True),
        _away("ESTALE", "Stale file handle", "stage/", True),
        _away("EROFS", "Read-only file system", "/v0", True),
        _away("ESTALE", "Stale file handle", "/v0", True),
        _away("HANG", "does not answer", "/v0", True, FILES, 4000))

# The one that a claim makes cannot be made; versions can be published.
CLAIM = (_away("EROFS", "Read-only file system", "/term."), _away("ESTALE", "Stale file handle", "/term."))
