"""A log is truncated while a slow reader takes its records: the answer ends, and has nothing else in it."""

import asyncio
import socket
from pathlib import Path

import pytest

from millrace.errors import StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.net.send import Outgoing
from millrace_broker.storage import Log, LogConfig, LogSlice, TopicPartition
from millrace_support.clock import ManualClock

MEGABYTE = 1 << 20
CONFIG = LogConfig(segment_bytes=64 * MEGABYTE, max_message_bytes=2 * MEGABYTE)
DEADLINE_S = 60


def fill(log: Log, word: bytes) -> None:
    while log.log_end_offset < 24:
        log.append(encode_batch([NewRecord(word * (MEGABYTE // 4))]), leader_epoch=0)


class Sender(asyncio.Protocol):
    """Sends a slice and truncates the log once the socket takes no more."""

    def __init__(self, log: Log, *, uses_sendfile: bool) -> None:
        self.log = log
        self.uses_sendfile = uses_sendfile
        found = log.read_or_find(0, 64 * MEGABYTE, up_to_offset=24, read_at_once_bytes=0)
        assert isinstance(found, LogSlice)
        self.found = found
        self.failure = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)

        def failed(error: Exception) -> None:
            transport.abort()
            self.failure.set_result(error)

        self.outgoing = Outgoing(transport, uses_sendfile=self.uses_sendfile, on_sent=lambda: None, on_failure=failed)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.outgoing.send([b"head", self.found])
        asyncio.get_running_loop().call_soon(self.truncate)

    def truncate(self) -> None:
        self.log.truncate_to(0)
        fill(self.log, b"new ")

    def pause_writing(self) -> None:
        self.outgoing.is_paused = True

    def resume_writing(self) -> None:
        self.outgoing.is_paused = False
        self.outgoing.resume()


@pytest.mark.parametrize("uses_sendfile", [True, False])
def test_an_answer_whose_records_were_cut_off_ends(tmp_path: Path, *, uses_sendfile: bool) -> None:
    log = Log(OsFileSystem(), ManualClock(), str(tmp_path), TopicPartition("t", 0), CONFIG)
    fill(log, b"old!")
    expected = b"head" + log.read(0, 64 * MEGABYTE, up_to_offset=24)

    async def send() -> tuple[Exception, bytes]:
        loop = asyncio.get_running_loop()
        sender = Sender(log, uses_sendfile=uses_sendfile)
        server = await loop.create_server(lambda: sender, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        try:
            while piece := await reader.read(1 << 16):
                received += piece
        except ConnectionResetError:
            pass
        writer.close()
        server.close()
        return await sender.failure, received

    async def in_time() -> tuple[Exception, bytes]:
        async with asyncio.timeout(DEADLINE_S):
            return await send()

    failure, received = asyncio.run(in_time())
    assert isinstance(failure, StorageError)
    assert len(received) < len(expected)
    assert expected.startswith(received)
    log.close()
