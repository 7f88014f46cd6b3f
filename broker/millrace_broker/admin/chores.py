"""The work that a broker repeats on its own timers, as a table, and the tasks and timers that repeat it.

Two watches look at the event loop and at the clock again and again. Whatever holds up the event loop longer than a few
milliseconds holds up every request. And the wall clock is set where it moves against the monotonic clock, which nobody
sets: retention, the age of segments and the time of records (LogAppendTime) follow the wall clock. Linux slews both
clocks alike where NTP corrects a little, so that only steps are seen: by hand, by NTP after a long time alone, or by a
machine that was suspended, whose monotonic clock stood still.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import NamedTuple

from millrace.clock import Clock
from millrace.errors import is_unforeseen
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import ClockCounts, ClockStep, Durations
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage import LogManager

logger = logging.getLogger(__name__)


class Chore(NamedTuple):
    """A function that is called repeatedly on the event loop, after a pause of `pause_ms` each time.

    Where `work` returns an awaitable, that is awaited before the next pause. A pause that may change is a function.
    """

    pause_ms: int | Callable[[], int]
    work: Callable[[], object]


def broker_chores(
    options: BrokerOptions, logs: LogManager, maintenance: LogMaintenance, services: Services
) -> list[Chore]:
    """Returns the broker's repeated work: retention, flushes, checkpoints, expiry. Each disk's work is separate."""
    broker, groups, transactions = options.broker, options.groups, options.transactions
    abort_interval_ms = transactions.transaction_abort_timed_out_transaction_cleanup_interval_ms
    expiration_interval_ms = transactions.transaction_remove_expired_transaction_cleanup_interval_ms
    chores = [
        Chore(broker.log_retention_check_interval_ms, maintenance.apply_retention_unrequested),
        Chore(broker.log_flush_scheduler_interval_ms, partial(asyncio.to_thread, logs.flush_due)),
        Chore(broker.log_flush_scheduler_interval_ms, partial(asyncio.to_thread, logs.remove_deleted)),
        Chore(max(broker.replica_lag_time_max_ms // 2, 1), services.replicas.check_in_sync_replicas),
        Chore(broker.producer_id_expiration_check_interval_ms, logs.expire_producers),
        Chore(groups.offsets_retention_check_interval_ms, services.groups.expire_offsets),
        Chore(abort_interval_ms, services.txns.abort_timed_out),
        Chore(expiration_interval_ms, services.txns.expire_transactional_ids),
    ]
    for data_dir in logs.dirs.all:
        chores += [
            Chore(
                broker.log_flush_offset_checkpoint_interval_ms, partial(asyncio.to_thread, logs.checkpoint, data_dir)
            ),
            Chore(
                broker.replica_high_watermark_checkpoint_interval_ms,
                partial(maintenance.checkpoint_high_watermarks, data_dir),
            ),
        ]
    if services.tokens.is_enabled:
        tokens = TokenConfig.from_properties(options.properties)
        work = partial(_remove_expired_tokens, services)
        chores.append(Chore(tokens.delegation_token_expiry_check_interval_ms, work))
    if broker.log_cleaner_enable:
        chores.append(Chore(lambda: services.config.log_cleaner_backoff_ms, maintenance.compact_unrequested))
    return chores


async def _remove_expired_tokens(services: Services) -> None:
    """Removes expired tokens, if this broker is the controller or the only broker."""
    if services.controller is None or services.controller.is_active:
        await services.tokens.remove_expired()


class Chores:
    """Repeats chores (functions that are called at intervals), each in its own task on the event loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, chores: Iterable[Chore]) -> None:
        """Begins to repeat the chores."""
        self._tasks += [asyncio.create_task(repeat(chore)) for chore in chores]

    async def stop(self) -> None:
        """Cancels all chores and returns when no task runs any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def repeat(chore: Chore) -> None:
    """Calls a chore after each pause until it is cancelled; logs a failure, and goes on."""
    while True:
        pause_ms = chore.pause_ms if isinstance(chore.pause_ms, int) else chore.pause_ms()
        await asyncio.sleep(pause_ms / 1000)
        try:
            done = chore.work()
            if isawaitable(done):
                await done
        except Exception as error:  # no failure may end the maintenance
            sentence = "maintenance failed; tried again in %d ms: %s"
            logger.error(sentence, pause_ms, error, exc_info=is_unforeseen(error))  # noqa: TRY400 -- it says what is foreseen


LOOP_INTERVAL_S = 0.25
CLOCK_INTERVAL_S = 1.0
LEAST_STEP_MS = 1000
READ_TOGETHER_MS = 100


class Watch:
    """A timer that fires at an interval, and calls `look` with the seconds by which it has fired too late."""

    def __init__(self, interval_s: float, look: Callable[[float], object]) -> None:
        self._interval_s = interval_s
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the timer, which starts itself again each time that it has fired."""
        due_s = self._loop.time() + self._interval_s
        self._timer = self._loop.call_at(due_s, self._fired, due_s)

    def stop(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self, due_s: float) -> None:
        self._look(max(0.0, self._loop.time() - due_s))
        self.start()


def broker_watches(clock: Clock, loop_delays: Durations, clock_counts: ClockCounts) -> tuple[Watch, ...]:
    """Returns two timers: one measures how late the event loop is, one finds that the machine's clock was set."""
    steps = ClockSteps(clock, clock_counts)
    return Watch(LOOP_INTERVAL_S, loop_delays.observe), Watch(CLOCK_INTERVAL_S, lambda _: steps.look())


class ClockSteps:
    """Compares wall time with monotonic time; counts and logs each jump of the wall clock by a second or more."""

    def __init__(self, clock: Clock, counts: ClockCounts) -> None:
        self._clock = clock
        self._counts = counts
        self._difference_ms = self._difference()

    def look(self) -> None:
        """Counts and logs the wall clock's jump since the last call, if there was one."""
        before_ms, now_ms = self._difference_ms, self._difference()
        if now_ms is None:
            return
        self._difference_ms = now_ms
        if before_ms is not None and abs(now_ms - before_ms) >= LEAST_STEP_MS:
            self._note(ClockStep((now_ms - before_ms) / 1000, self._clock.monotonic_ms()))

    def _note(self, step: ClockStep) -> None:
        self._counts.steps += 1
        self._counts.stepped_s += step.by_s
        self._counts.last = step
        logger.warning(
            "the machine's clock was set %s: retention and the times of records follow it", step.sentence_part
        )

    def _difference(self) -> int | None:
        """Returns wall time less monotonic time in ms; None where the process was held up between the two readings."""
        before_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        return None if self._clock.monotonic_ms() - before_ms > READ_TOGETHER_MS else now_ms - before_ms
