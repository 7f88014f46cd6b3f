"""A mirror as a service: one instance of each source, until it is stopped, or until all that was there is mirrored.

    with MirrorService(settings) as service:
        service.run(once=True)

Several services with the same settings, on one machine or on many, share the partitions (`sharing`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from millrace.clock import Clock, SystemClock
from millrace_pipelines.mirror.counters import Counted, Counters
from millrace_pipelines.mirror.instance import MirrorInstance, Standing
from millrace_pipelines.mirror.loops import Surroundings
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.rights import TARGET, needing, side_of
from millrace_pipelines.mirror.settings import MirrorSettings, Side
from millrace_pipelines.mirror.states import State, TopicState
from millrace_pipelines.mirror.telling import Tell

logger = logging.getLogger(__name__)

LOOK_S = 0.1


class MirrorService:
    """Mirrors all sources of the settings; `run` blocks, `stop` may be called by any thread.

    Args:
        settings: What to mirror.
        tell: Shows a line to people: of what stopped, and of who is waited for.
        clock: The machine's unless given.
    """

    def __init__(self, settings: MirrorSettings, *, tell: Tell = logger.warning, clock: Clock | None = None) -> None:
        self.counters = Counters()
        self._is_stopping = False  # no event: a handler of signals that sets one may meet its lock, held by `run`
        self._error: BaseException | None = None
        self._sides: Mapping[str, Side] = {
            TARGET: settings.target,
            **{side_of(one.name): one for one in settings.sources},
        }
        clock = clock or SystemClock()
        self._instances = [
            MirrorInstance(
                settings,
                one,
                Surroundings(self.counters, tell, clock, Throttle(settings.throttle_bytes_per_s)),
                self._failed,
            )
            for one in settings.sources
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._end()

    def run(self, *, once: bool = False, looks: Callable[[], object] = lambda: None) -> None:
        """Mirrors until `stop` is called or, with `once`, until the ends at the start are mirrored.

        `looks` is called ten times a second. Raises what has ended a thread.
        """
        for name, side in self._sides.items():
            with needing(name):
                side.security()
        for one in self._instances:
            one.start(once=once)
        pause = threading.Event()  # which nobody sets
        while not self._is_stopping and not (once and all(one.is_done() for one in self._instances)):
            pause.wait(LOOK_S)
            looks()
        self._end()
        looks()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Has `run` end; also for handlers of signals."""
        self._is_stopping = True

    def stopped(self) -> Mapping[str, str]:
        """Returns the sentences of what has stopped, by topic, or partition where it is one alone."""
        found = {f"{one.source}/{one.what}": line.stop for one, line in self.counters.read().items()}
        reasons = {name: stop.reason for name, stop in found.items() if stop is not None}
        reasons |= {
            f"{one.source}/{one.what}": line.trouble for one, line in self.counters.read().items() if line.is_lasting
        }
        for one in self._instances:
            reasons |= one.denied
        return reasons | {state.key: state.reason for state in self.states().values() if state.state is State.STOPPED}

    def states(self) -> Mapping[str, TopicState]:
        """Returns the states of all topics, by key, as they were read last."""
        return {state.key: state for one in self._instances for state in one.states.values()}

    def standings(self) -> Sequence[Standing]:
        """Returns how this instance stands among those of each source."""
        return [one.standing for one in self._instances]

    def ends(self) -> Mapping[Counted, int]:
        """Returns where the partitions of all sources ended at the first look, as far as that was made."""
        return {one: end for instance in self._instances for one, end in (instance.ends or {}).items()}

    def _end(self) -> None:
        for one in self._instances:
            one.stop()

    def _failed(self, error: BaseException) -> None:
        self._error = self._error or error
        self._is_stopping = True
