"""An operation that is repeated while a history is recorded; a failure because no broker answers in time is allowed.

No error may say that the topic, or the end of a log, is gone: nothing is lost, however leaders change.
"""

import logging
import threading
from collections import Counter

from millrace.client.answers import is_retriable
from millrace.errors import MillraceError
from millrace_support.waiting import awaited

logger = logging.getLogger(__name__)
PAUSE_S = 1.0
FALSE_ALARMS = ("Truncated", "Recreated", "OffsetsLost", "does not exist")  # also in the error of a task that is quoted


class AgainAndAgain(threading.Thread):
    """Calls `do_once` until it is stopped; as a context manager it has ended when the `with` block is left.

    `do_once` returns True once it has done everything, else None. `ends` counts the calls by their outcomes, and
    `alarms` has the errors that are not allowed.
    """

    def __init__(self, name):
        super().__init__(name=name, daemon=True)
        self.stopping, self.ends, self.alarms = threading.Event(), Counter(), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        if self.is_alive():
            self.join()

    def run(self):
        while not self.stopping.wait(PAUSE_S):
            try:
                self.attempt()
            except BaseException as error:
                self.alarms.append(repr(error))
                raise

    def attempt(self):
        """Returns the result of `do_once`; notes a MillraceError and returns None."""
        try:
            return self.do_once()
        except MillraceError as error:
            self.note(error)
            return None

    def note(self, error):
        said = f"{type(error).__name__}: {error}"
        logger.info("%s failed: %s", self.name, said)
        self.ends[f"{self.name} failed by {type(error).__name__}"] += 1
        if not is_retriable(error) or any(alarm in said for alarm in FALSE_ALARMS):
            self.alarms.append(said)

    def do_last(self):
        """Stops the thread, and calls `do_once` until it returns True, again after an error that is allowed."""
        self.stopping.set()
        self.join()
        awaited(lambda: self.alarms or self.attempt(), f"{self.name} do the last", lambda: str(self.ends))
        assert self.alarms == []
