"""A server that drains cuts off whoever has not taken its replies in time, and nobody else."""

import asyncio

from millrace.clock import SystemClock
from millrace_broker.broker import Broker
from millrace_broker.startup.options import parse_options
from millrace_support.until import until


def test_who_has_gone_when_the_time_is_over_is_not_cut_off(tmp_path, caplog):
    """A limit of 0 s stands for a process that stood still until its time was over."""

    async def scene():
        arguments = ["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
        broker = Broker(parse_options(arguments), SystemClock())
        address = await broker.start()
        try:
            _, writer = await asyncio.open_connection(*address)
            await until(lambda: broker._server.connection_count)
            await broker._server.drain(0.0)
            assert broker._server.connection_count == 0
            writer.close()
        finally:
            await broker.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))
    assert "cutting off" not in caplog.text
