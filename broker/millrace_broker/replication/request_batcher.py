"""Asks other brokers in batches: each has one request in flight, and all that is asked meanwhile goes with the next.

    outcome = await batcher.ask(broker_id, item)
                     item ──► waits for its broker ──► exchange(link, items) ──► an outcome for each item

Nothing is sent again: where a broker can't be reached, or its answer is lost, all items of the batch fail. Those who
asked decide by the newest metadata whether they ask again, and which broker.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from millrace.addresses import Address
from millrace.errors import BrokerUnreachableError
from millrace_broker.replication.broker_link import BrokerLink, Connect

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

REQUEST_TIMEOUT_S = 30.0  # Kafka's request.timeout.ms
MAX_RESPONSE_BYTES = 64 << 20


class RequestBatcher(Generic[Item, Outcome]):
    """Asks brokers about items, over one connection to each.

    Args:
        exchange: asks one broker about some items, and returns the outcome of each in their order.
        address_of: returns where a broker is now; None where that is not known.
        client_id: names this broker in each request.
        connect: makes the connections.
    """

    def __init__(
        self,
        exchange: Callable[[BrokerLink, Sequence[Item]], Awaitable[Sequence[Outcome]]],
        address_of: Callable[[int], Address | None],
        client_id: str,
        connect: Connect = BrokerLink.connect,
    ) -> None:
        self._connect = connect
        self._exchange = exchange
        self._address_of = address_of
        self._client_id = client_id
        self._waiting: dict[int, list[tuple[Item, asyncio.Future[Outcome]]]] = {}
        self._links: dict[int, BrokerLink] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def ask(self, broker_id: int, item: Item) -> asyncio.Future[Outcome]:
        """Returns a future of the outcome; it raises what `BrokerLink.connect` and `BrokerLink.request` raise."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(broker_id, []).append((item, outcome))
        if broker_id not in self._senders:
            self._senders[broker_id] = asyncio.create_task(self._send_all(broker_id))
        return outcome

    async def close(self) -> None:
        """Stops asking, as the broker stops; what is in flight gets no outcome any more."""
        senders = tuple(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for link in self._links.values():
            link.close()

    async def _send_all(self, broker_id: int) -> None:
        try:
            while batch := self._waiting.pop(broker_id, None):
                await self._send(broker_id, [one for one in batch if not one[1].done()])
        finally:
            del self._senders[broker_id]

    async def _send(self, broker_id: int, batch: Sequence[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._exchange(await self._link(broker_id), [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 -- those who asked judge it
            for _, outcome in batch:
                if not outcome.done():
                    outcome.set_exception(error)
            return
        for (_, outcome), found in zip(batch, outcomes, strict=True):
            if not outcome.done():
                outcome.set_result(found)

    async def _link(self, broker_id: int) -> BrokerLink:
        """Returns the open link to a broker; a new one where it failed, or the broker is elsewhere now."""
        address = self._address_of(broker_id)
        link = self._links.get(broker_id)
        if link is not None and (link.is_closed or link.address != address):
            link.close()
            del self._links[broker_id]
            link = None
        if address is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not known to be alive")
        if link is None:
            link = self._links[broker_id] = await self._connect(
                address,
                client_id=self._client_id,
                timeout_s=REQUEST_TIMEOUT_S,
                max_response_bytes=MAX_RESPONSE_BYTES,
            )
        return link


def in_rounds(items: Iterable[Item], key_of: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Splits items into lists in which each key occurs once, in their order; for answers that name items by a key."""
    rounds: list[dict[Hashable, Item]] = []
    depths: dict[Hashable, int] = {}
    for item in items:
        key = key_of(item)
        depth = depths[key] = depths.get(key, -1) + 1
        if depth == len(rounds):
            rounds.append({})
        rounds[depth][key] = item
    return [list(one.values()) for one in rounds]
