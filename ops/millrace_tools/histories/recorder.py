"""Writes a history while it happens, from any number of threads: each line is whole, and times never go back.

    recorder = Recorder(file)
    recorder.invoke("p1", Action.SEND, [Send("events-0", 17)])
    …                                      # what the client does
    recorder.end("p1", Outcome.OK, [Send("events-0", 17, offset)])

A crash leaves the lines so far; an operation that was begun and not ended counts as not known. Times are nanoseconds of
the machine's monotonic clock, which is finer than `millrace.clock`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO

from millrace_tools.histories.events import Action, Outcome, Owning, Poll, Send, Step


class Recorder:
    """The one writer of a history; `done` counts the operations that ended with `ok`, by their actions."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._progress = threading.Condition()
        self._begun: dict[str, Action] = {}
        self.done: Counter[Action] = Counter()

    def invoke(
        self, process: str, action: Action, steps: Iterable[Step] = (), partitions: Iterable[str] = (), group: str = ""
    ) -> None:
        """Notes that a process begins an operation; it is called before the client is asked."""
        event = {"process": process, "event": "invoke", "action": action} | ({"group": group} if group else {})
        self._begun[process] = action
        self._write(event | _listed("steps", map(_words, steps)) | _listed("partitions", partitions))

    def end(
        self, process: str, outcome: Outcome, steps: Iterable[Step] = (), *, committing_ns: int | None = None
    ) -> None:
        """Notes that the process's operation has ended; it is called after the client has answered."""
        event: dict[str, object] = {"process": process, "event": outcome} | _listed("steps", map(_words, steps))
        self._write(event if committing_ns is None else event | {"committing_ns": committing_ns})
        with self._progress:
            self.done[self._begun.pop(process)] += outcome is Outcome.OK
            self._progress.notify_all()

    def await_done(self, more: Mapping[Action, int], timeout_s: float) -> bool:
        """Waits until `more` further operations of each action have ended with `ok`; returns whether they have."""
        with self._progress:
            wanted = self.done + Counter(more)
            return self._progress.wait_for(lambda: self.done >= wanted, timeout_s)

    def _write(self, event: dict[str, object]) -> None:
        with self._progress:
            self._file.write(json.dumps({"time_ns": time.monotonic_ns()} | event) + "\n")


def _listed(name: str, things: Iterable[object]) -> dict[str, object]:
    listed = list(things)
    return {name: listed} if listed else {}


def _words(step: Step) -> list[object]:
    match step:
        case Send(partition, value, offset):
            return ["send", partition, value, offset]
        case Poll(partition, records):
            return ["poll", partition, [list(record) for record in records]]
        case Owning(action, partition, token, offset):
            return [action, partition, token] if offset is None else [action, partition, token, offset]
