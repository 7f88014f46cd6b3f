"""A mirror that runs in a thread of the test, and the commands that see to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from typer.testing import Result

from millrace_ops.cli.app import app
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_support.command_runner import CommandRunner

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Roles(NamedTuple):
    """One direction of a mirror: the source's name, the addresses of both sides, and its topics."""

    name: str
    source: str
    target: str
    topics: str
    way: Way = Way.AUTO
    keep_names: bool = False

    def settings(self, **given: Any) -> MirrorSettings:
        """Returns the settings of a mirror in this direction."""
        source = Source(name=self.name, bootstrap=self.source, topics=(self.topics,))
        return MirrorSettings(
            target=Side(bootstrap=self.target),
            sources=(source,),
            way=self.way,
            keep_names=self.keep_names,
            topics_interval_ms=500,
            groups_interval_ms=200,
            **given,
        )

    def once(self) -> list[str]:
        """Mirrors what is there; returns what was told of what has stopped."""
        told: list[str] = []
        with MirrorService(self.settings(), tell=told.append) as service:
            service.run(once=True)
        return told

    @contextmanager
    def running(self) -> Iterator[MirrorService]:
        """Makes the context in which an instance runs."""
        with MirrorService(self.settings()) as service:
            thread = threading.Thread(target=service.run)
            thread.start()
            try:
                yield service
            finally:
                service.stop()
                thread.join()

    def command(self, name: str, *arguments: str) -> Result:
        """Runs `millrace mirror NAME`."""
        return CommandRunner().invoke(app, ["mirror", name, *self.options(), *arguments])

    def options(self) -> list[str]:
        """Returns the options that name both sides and the topics."""
        sides = ["--source", f"{self.name}={self.source}", "--target", self.target, "--topics", self.topics]
        return [*sides, "--keep-names"] if self.keep_names else sides
