"""Processes that load ranges into one Iceberg table until it has all of them, or they are killed."""

from __future__ import annotations

import multiprocessing
import random
import uuid
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from millrace_pipelines.warehouse.errors import CatalogError, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_to_write
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.rewrite import files_removed_on
from millrace_support.iceberg_tables import FS, commit_range

LONGEST_RANGE = 10


def prepared() -> ForkServerContext:
    """Returns how such processes are started: from a new one that has imported what they need, and this environment."""
    server: Any = vars(forkserver)["_forkserver"]  # it has the environment of when it was started
    vars(type(server))["_stop"](server)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "millrace_pipelines.warehouse.iceberg.table"])
    return context


def started(context: ForkServerContext, address: str, partitions: int, until_offset: int) -> ForkServerProcess:
    """Starts a process that loads ranges of random partitions and lengths."""
    process = context.Process(target=load_all, args=(address, partitions, until_offset), daemon=True)
    process.start()
    return process


def load_all(address: str, partitions: int, until_offset: int) -> None:
    """Loads ranges until the table has all offsets of all partitions; gives way to others, and goes on."""
    is_done = False
    while not is_done:
        with suppress(StaleLedgerError, CatalogError):
            is_done = _load_one(address, partitions, until_offset)


def _load_one(address: str, partitions: int, until_offset: int) -> bool:
    """Loads a range of a random partition and length; returns whether there was none."""
    table = load_to_write(address, FS)
    ledger = ledger_of(table)
    reached = [ledger.next_offset(partition) or 0 for partition in range(partitions)]
    open_ones = [partition for partition in range(partitions) if reached[partition] < until_offset]
    if open_ones:
        chosen = random.Random()  # noqa: S311  # no secret
        partition, load_id = chosen.choice(open_ones), uuid.uuid4().hex
        until = min(until_offset, reached[partition] + chosen.randint(1, LONGEST_RANGE))
        with files_removed_on(StaleLedgerError, [table.location], load_id, FS):
            commit_range(table, until, partition=partition, load_id=load_id)
    return not open_ones
