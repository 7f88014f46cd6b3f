"""Whether a broker of each cluster answers: asked every few seconds, on a thread and with a connection for each.

It is asked apart from the work, so that it is known of a cluster of which this instance has no partitions, too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple, Self

from millrace.errors import MillraceError
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source

INTERVAL_S = 5.0
TARGET, SOURCE = "target", "source"


class Place(NamedTuple):
    """A cluster of the mirror: the target, or a source by its name."""

    side: str
    source: str = ""

    def __str__(self) -> str:
        return f"{SOURCE} {self.source}" if self.source else TARGET


class Reachability:
    """Asks the clusters of a mirror while its context is open."""

    def __init__(self, settings: MirrorSettings, *, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._troubles: dict[Place, str] = {}
        sides: list[Side] = [settings.target, *settings.sources]
        self._threads = [
            threading.Thread(target=self._ask, args=(one,), name=f"reach-{_place(one)}", daemon=True) for one in sides
        ]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for one in self._threads:
            one.join()

    def troubles(self) -> Mapping[Place, str]:
        """Returns of each cluster that has been asked why it does not answer; "" if it does."""
        return self._troubles.copy()

    def _ask(self, side: Side) -> None:
        while not self._stopping.is_set():
            try:
                with side.cluster() as cluster:
                    while not self._stopping.is_set():
                        cluster.metadata([])
                        self._troubles[_place(side)] = ""
                        self._stopping.wait(self._interval_s)
            except MillraceError as error:
                self._troubles[_place(side)] = str(error)
                self._stopping.wait(self._interval_s)


def _place(side: Side) -> Place:
    return Place(SOURCE, side.name) if isinstance(side, Source) else Place(TARGET)
