"""DescribeLogDirs while a log is copied to another data directory: the partition's role makes no difference."""

import asyncio
from pathlib import Path

import pytest

from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_support.broker_with_followers import FIRST, LEADER, Home, broker_with_followers

VERSION = 4


async def described(home: Home) -> dict[str, list[tuple[bool, int]]]:
    """(is future, offset lag) of each copy of the first partition, by the folder's name."""
    body = encode(ApiKey.DESCRIBE_LOG_DIRS, VERSION, Direction.REQUEST, {"topics": None})
    answer = decode(
        ApiKey.DESCRIBE_LOG_DIRS, VERSION, Direction.RESPONSE,
        await home.link.exchange(ApiKey.DESCRIBE_LOG_DIRS, VERSION, body),
    )  # fmt: skip
    assert answer.error_code == 0
    return {
        Path(str(directory.log_dir)).name: [
            (one.is_future_key, one.offset_lag)
            for topic in directory.topics
            for one in topic.partitions
            if (topic.name, one.partition_index) == FIRST
        ]
        for directory in answer.results
    }


@pytest.mark.parametrize(("role", "lag"), [("led", 2), ("followed", 2), ("none", -1)])
def test_a_copy_is_described(tmp_path: Path, role: str, lag: int) -> None:
    async def scene() -> None:
        folders = [tmp_path / "one", tmp_path / "two"]
        async with broker_with_followers(*folders) as home:
            for _ in range(2):
                await home.produce(LEADER)
            log = home.replicas.partition(FIRST).log
            here = Path(log.directory).parent
            there = next(folder for folder in folders if folder != here)
            moves = home.replicas.logs.moves
            moves.begin(FIRST, str(there))  # nothing is copied: the thread that copies is not started
            if role == "followed":
                home.replicas.stop(FIRST)
            elif role == "none":
                home.replicas.resign(FIRST)
            assert await described(home) == {here.name: [(False, 0)], there.name: [(True, lag)]}
            moves.drop(FIRST)

    asyncio.run(scene())
