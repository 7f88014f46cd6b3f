"""Executors that this process's Spark application loses, a sentence for each: Spark repeats their tasks silently.

Spark Connect does not tell its clients of executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext

NOT_LOST = ("killed by driver", "Executor killed")
"""What the reason has where Spark itself gives an executor back, such as an idle one."""


class Removed(NamedTuple):
    """An executor that is gone: its id, its `HOST:PORT`, and Spark's reason."""

    executor: str
    address: str
    reason: str

    @property
    def is_lost(self) -> bool:
        """Returns whether the application has not given it back by itself."""
        return not any(one in self.reason for one in NOT_LOST)

    def __str__(self) -> str:
        """Returns the sentence for who follows a load."""
        first = self.reason.partition(". ")[0].strip().rstrip(".") or "no reason was given"
        host = self.address.rpartition(":")[0] or self.address
        return f"Spark has lost executor {self.executor} on {host} ({first}); what it was doing is done again on others"


class LostExecutors:
    """Tells of each lost executor once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def news(self) -> list[str]:
        """Returns a sentence for each executor that was lost since the last call; none where Spark does not tell."""
        found: list[Removed] = []
        with suppress(Py4JError, OSError):  # the JVM is gone, which is told by others
            found += _removed()
        new = [one for one in found if one.executor not in self._seen]
        self._seen |= {one.executor for one in new}
        return [str(one) for one in new if one.is_lost]


def _removed() -> Iterator[Removed]:
    context = SparkContext._active_spark_context  # noqa: SLF001  this process has at most one
    if context is None:
        return
    executors = context._jsc.sc().statusStore().executorList(False)  # noqa: SLF001  PySpark's own tracker lacks these
    for number in range(executors.length()):
        one = executors.apply(number)
        if not one.isActive():
            reason = one.removeReason()
            yield Removed(one.id(), one.hostPort(), reason.get() if reason.isDefined() else "")
