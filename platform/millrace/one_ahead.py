"""Makes the items of a generator on another thread, each while the one before it is being used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(items: Generator[Item, None, None]) -> Iterator[Item]:
    """Yields the items, of which none is None; whoever stops early waits for the one that is being made."""
    with closing(items), ThreadPoolExecutor(1, "fetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
