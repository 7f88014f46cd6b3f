"""A follower changes the files of its logs on the workers of their data directories, never on the event loop."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from millrace.config import MAX_LONG
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.storage import Log
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.following_broker import (
    LEADER,
    TOPIC_ID,
    Follower,
    Machine,
    append,
    content,
    following,
    led,
    played,
    same,
)
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until

WORKS = ("open", "truncate", "reserve", "fsync", "fsync_dir", "rename", "mkdir", "unlink", "rmdir", "listdir")


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The changes and syncs of files that are made on the test's own thread, on which the event loop runs."""
    notes: list[str] = []

    def recorded(name: str) -> Callable[..., object]:
        work = getattr(CrashFileSystem, name)

        def call(self: CrashFileSystem, *args: object, **kwargs: object) -> object:
            if threading.current_thread() is threading.main_thread() and (name != "open" or kwargs.get("create")):
                notes.append(name)
            return work(self, *args, **kwargs)

        return call

    for name in WORKS:
        monkeypatch.setattr(CrashFileSystem, name, recorded(name))
    return notes


def start_workers(follower: Follower) -> None:
    loop = asyncio.get_running_loop()
    follower.logs.start_lanes(lambda one: loop.call_soon_threadsafe(follower.followed[one.partition].when_synced))


@contextmanager
def refusing_epochs(fs: CrashFileSystem) -> Iterator[None]:
    """The disk has no room for the leader epochs."""
    real = fs.open

    def opened(path: str, *, create: bool = False) -> int:
        if create and LEADER_EPOCH_CHECKPOINT in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, create=create)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fs, "open", opened)
        yield


async def cut(follower: Follower, notes: list[str], *, is_disk_full: bool = False) -> tuple[FollowedPartition, Log]:
    """Has the log cut, as the next leader has another one; on a full disk its epochs stay in their file."""
    first, second = Machine(LEADER), Machine(3)
    old, new = first.log(), second.log()
    for log in (old, new):
        append(log, 3, epoch=1)
    append(old, 3, epoch=2)
    append(new, 2, epoch=3)
    leaders = LeadingBroker([LedLog(old, TOPIC_ID, 2)]), LeadingBroker([LedLog(new, TOPIC_ID, 3)])
    async with ScriptedBroker(leaders[0].answer) as one, ScriptedBroker(leaders[1].answer) as other:
        follower.addresses |= {LEADER: one.address, 3: other.address}
        followed = follower.follow(epoch=2)
        await until(lambda: same(followed.log, old))
        followed.log.flush()
        start_workers(follower)
        notes.clear()
        with refusing_epochs(follower.fs) if is_disk_full else nullcontext():
            followed = follower.follow(epoch=3, leader=3)
            await until(lambda: not is_disk_full or followed.retry_at_s)
        await until(lambda: same(followed.log, new) and not followed.log.is_held)
    return followed, new


async def cut_on_a_full_disk(follower: Follower, notes: list[str]) -> tuple[FollowedPartition, Log]:
    return await cut(follower, notes, is_disk_full=True)


async def fetched(follower: Follower, notes: list[str], one: LedLog) -> tuple[FollowedPartition, Log]:
    async with ScriptedBroker(LeadingBroker([one]).answer) as leader:
        follower.addresses[LEADER] = leader.address
        high_watermark = follower.log().log_end_offset
        start_workers(follower)
        notes.clear()
        followed = follower.follow(high_watermark=high_watermark)
        await until(lambda: same(followed.log, one.log) and not followed.log.is_held)
        return followed, one.log


async def longer_than_the_leaders(follower: Follower, notes: list[str]) -> tuple[FollowedPartition, Log]:
    (one,) = led(Machine(LEADER))
    append(one.log, 3, epoch=-1)
    append(follower.log(), 6, epoch=-1)
    return await fetched(follower, notes, one)


async def ends_below_the_leaders_start(follower: Follower, notes: list[str]) -> tuple[FollowedPartition, Log]:
    (one,) = led(Machine(LEADER))
    one.log.truncate_fully_and_start_at(100)
    append(one.log, 3)
    append(follower.log(), 3, epoch=-1)
    return await fetched(follower, notes, one)


async def begins_below_the_start(follower: Follower, notes: list[str]) -> tuple[FollowedPartition, Log]:
    (one,) = led(Machine(LEADER))
    one.log.append(encode_batch([NewRecord(b"v")] * 10), leader_epoch=1)
    one.log.raise_log_start_offset(5)
    return await fetched(follower, notes, one)


async def has_gaps(follower: Follower, notes: list[str]) -> tuple[FollowedPartition, Log]:
    (one,) = led(Machine(LEADER))
    for offset in (0, 7):
        batch = encode_batch([NewRecord(b"v")], base_offset=offset)
        one.log.append_as_follower(batch, leader_epoch=1)
    return await fetched(follower, notes, one)


@pytest.mark.parametrize(
    "happens",
    [
        cut,
        cut_on_a_full_disk,
        longer_than_the_leaders,
        ends_below_the_leaders_start,
        begins_below_the_start,
        has_gaps,
    ],
)
def test_the_event_loop_changes_no_file(on_the_loop: list[str], happens: Callable[..., object]) -> None:
    async def scenario() -> None:
        async with following(LeadingBroker([])) as (follower, _):
            followed, leaders = await happens(follower, on_the_loop)  # type: ignore[misc]
            seen = list(on_the_loop)
            follower.logs.stop_lanes()
            assert seen == []
            assert followed.failure is None
            assert followed.log.leader_epochs.entries == leaders.leader_epochs.entries
            assert content(followed.log) == content(leaders)
            assert followed.log.read(leaders.log_start_offset, MAX_LONG, up_to_offset=MAX_LONG)

    played(scenario)
