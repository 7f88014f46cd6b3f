"""The work that a broker repeats on its own timers, as a table, and the tasks that repeat it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import NamedTuple

from millrace.errors import is_unforeseen
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.handlers.api import Services
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage import LogManager

logger = logging.getLogger(__name__)


class Chore(NamedTuple):
    """Work that is repeated, and the pause before each time; the pause is a function where it may change.

    Work of the event loop is done when it returns, unless it returns what is to be awaited.
    """

    pause_ms: int | Callable[[], int]
    work: Callable[[], object]


def broker_chores(
    options: BrokerOptions, logs: LogManager, maintenance: LogMaintenance, services: Services
) -> list[Chore]:
    """Returns the chores of a broker. Each data directory has its own, so that a slow disk delays no other's."""
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
    """Repeats chores, each in its own task on the event loop."""

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
    """Repeats a chore until it is cancelled; one that fails is logged and done again."""
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
