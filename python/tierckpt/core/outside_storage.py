# SPDX-License-Identifier: Apache-2.0
"""Whether what an adapter writes to storage in its framework's own format gets there."""

import time
from dataclasses import replace

from ..runtime.native import Health


class OutsideStorage:
    """The agents write none of it, so they do not know. From the first failure until a success it is shown in the
    health of the checkpoint, as other trouble with storage is."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failed: list[int] = []
        self._text = ""

    def failed(self, step: int, text: str) -> None:
        """`text` names what was not written, and why."""
        self._since = self._since or time.time()
        self._failed.append(step)
        self._text = text

    def worked(self) -> None:
        self._since, self._failed, self._text = None, [], ""

    @property
    def well(self) -> bool:
        return self._since is None

    def shown_in(self, health: Health) -> Health:
        if self._since is None:
            return health
        return replace(health, storage_ok=False, storage_since=self._since, storage_text=self._text,
                       undrained_first=self._failed[0], undrained_newest=self._failed[-1],
                       undrained_count=len(self._failed))
