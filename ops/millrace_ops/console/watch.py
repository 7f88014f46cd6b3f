"""Looks at the cluster again and again while somebody looks at pages, and keeps the newest overview and the rates.

    a page asks ──► the newest overview, at once; the first page waits for the first look
                    every INTERVAL_S a look at metadata and offsets; the second look, and then every SIZES_EVERY-th,
                    is also at sizes and at what is copied between data directories
                    a look that takes long makes the pauses longer
                    IDLE_S without a page: no further looks until the next page, which waits for one

A look that fails leaves the overview as it is, and the next page that asks is told why.
"""

from __future__ import annotations

import logging
import threading

from millrace.clock import Clock
from millrace.errors import ClientError, MillraceError
from millrace_ops.console.clusters import Clusters
from millrace_ops.console.overview import Overview, Replicas, look_at_offsets, look_at_replicas, summaries
from millrace_ops.console.rates import RateRing

logger = logging.getLogger(__name__)

INTERVAL_S = 10.0
PART_OF_TIME = 0.1  # the share of the time that looks may take
SOON_S = 1.0
SIZES_EVERY = 3
IDLE_S = 300.0


class Watch:
    """Looks at the cluster again and again, on a thread that starts with the first page."""

    def __init__(self, clusters: Clusters, clock: Clock) -> None:
        self._clusters = clusters
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked_at_s = 0.0
        self._looks = 0
        self._look_s = 0.0
        self._looked_at_s = 0.0
        self._pause_s = INTERVAL_S
        self._overview: Overview | None = None
        self._failure: MillraceError | None = None
        self._replicas = Replicas({}, {})
        self.rates = RateRing()

    def overview(self) -> Overview:
        """Returns the newest overview; raises the error of the last look where that failed."""
        with self._changed:
            self._asked_at_s = self._clock.monotonic_s()
            if self._asked_at_s - self._looked_at_s > 2 * self._pause_s:  # nobody has asked for long
                self._overview, self._failure = None, None
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: not self._is_awaited())
            if self._failure is not None or self._overview is None:
                raise self._failure or AssertionError
            return self._overview

    def look(self) -> None:
        """Looks once, and gives the overview, or the error, to the pages that wait."""
        failure: MillraceError | None = None
        overview = self._overview
        try:
            overview = self._look()
        except MillraceError as error:
            failure = error
        except Exception as error:  # the thread goes on, or pages would wait for ever
            logger.exception("the look at the cluster failed")
            failure = ClientError(f"the look at the cluster failed: {error!r}")
        with self._changed:
            self._overview, self._failure = overview, failure
            self._looked_at_s = self._clock.monotonic_s()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            self.look()
            with self._changed:
                self._pause_s = max(INTERVAL_S, self._look_s / PART_OF_TIME)
                self._changed.wait_for(self._is_awaited, self._pause_s if self._has_sizes else SOON_S)
                self._changed.wait_for(lambda: self._clock.monotonic_s() - self._asked_at_s < IDLE_S)

    def _is_awaited(self) -> bool:
        """Returns whether a page waits for a look."""
        return self._overview is None and self._failure is None

    @property
    def _has_sizes(self) -> bool:
        """Whether the newest look has not failed, and sizes have been looked at once."""
        return self._failure is None and self._looks > 1

    def _look(self) -> Overview:
        started_s = self._clock.monotonic_s()
        with self._clusters.lent() as cluster:
            metadata = cluster.metadata()
            offsets = look_at_offsets(cluster, metadata)
            if self._looks % SIZES_EVERY == 1:
                self._replicas = look_at_replicas(cluster, metadata)
        self._looks += 1
        self._look_s = self._clock.monotonic_s() - started_s
        topics = summaries(metadata, offsets, self._replicas.sizes)
        self.rates.add(
            self._clock.monotonic_s(), {name: one.end_sum for name, one in topics.items() if one.end_sum is not None}
        )
        ends = {one: found.log_end for one, found in offsets.items()}
        return Overview(self._clock.now_ms(), metadata, topics, ends, self._replicas.copied)
