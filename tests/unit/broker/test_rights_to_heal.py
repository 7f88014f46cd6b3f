"""A broker that heals reads another one's log by the right of brokers, and no other client does."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation
from millrace.wire.fetch import PartitionKey
from millrace_broker.replication.range_fetch import Missing, OtherReplicas, Sources
from millrace_broker.security.acls.authorizer import Access
from millrace_support.broker_with_followers import FIRST, LEADER, Home, broker_with_followers

CONSUMER, FOLLOWER = -1, 2


class Allows:
    """An authorizer that allows one operation on everything."""

    def __init__(self, operation: AclOperation) -> None:
        self._operation = operation

    def authorize(self, _session: Any, operation: AclOperation, *_: Any) -> bool:
        return operation is self._operation

    def take(self, _: Any) -> None:
        pass


class NoLog:
    """An audit log that notes nothing."""

    tells_allowed = False

    def note(self, *_: Any, **__: Any) -> None:
        pass


async def heals(home: Home, *, offset: int = 0, is_committed: bool = True) -> bool:
    """Returns whether the healer gets the batch of the leader at an offset."""

    async def link_to(_: int) -> Any:
        return home.link

    partition = home.replicas.partition(FIRST)
    async with AsyncExitStack() as links:
        key = PartitionKey(home.metadata.image.topics[FIRST.topic].topic_id, FIRST.partition)
        others = OtherReplicas(link_to, links, key, Sources((home.broker_id,), partition.leader_epoch))
        missing = Missing(offset, offset, offset + 1, 0, partition.leader_epoch, may_leave_out=False)
        found = await others.next_batches(missing, is_committed=is_committed)
        links.pop_all()  # the link is the test's
    return found is not None


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [(AclOperation.CLUSTER_ACTION, {"healer", "follower"}), (AclOperation.READ, {"consumer"})],
)
def test_healing_is_an_action_of_the_cluster(tmp_path: Path, operation: AclOperation, allowed: set[str]) -> None:
    async def scene() -> set[str]:
        async with broker_with_followers(tmp_path) as home:
            home.lead()
            await home.produce(LEADER)
            home.fetched(1)
            home.services.authorizer = Access(Allows(operation), NoLog())  # type: ignore[arg-type]
            asked = {"consumer": CONSUMER, "follower": FOLLOWER}
            codes = {who: (await home.fetch(0, replica)).error_code for who, replica in asked.items()}
            assert set(codes.values()) <= {ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            served = {who for who, code in codes.items() if code == ErrorCode.NONE}
            return {*served, "healer"} if await heals(home) else served

    assert asyncio.run(asyncio.wait_for(scene(), 60)) == allowed


def test_a_broker_that_heals_gets_what_is_not_known_as_committed_where_it_asks_for_it(tmp_path: Path) -> None:
    async def scene() -> list[bool]:
        async with broker_with_followers(tmp_path) as home:
            home.lead()
            await home.produce(LEADER)
            home.fetched(1)
            await home.produce(LEADER)
            assert home.replicas.partition(FIRST).high_watermark == 1
            return [
                await heals(home, offset=offset, is_committed=is_committed)
                for offset in range(3)
                for is_committed in (True, False)
            ]

    assert asyncio.run(asyncio.wait_for(scene(), 60)) == [True, True, False, True, False, False]
