"""What `millrace mirror` does: runs a mirror, and shows how far it is.

At a terminal a bar moves; everywhere a line on stdout says of each topic that it is at the end of what was there, and
one on stderr what has stopped. SIGTERM and Ctrl-C end it after what is under way; Ctrl-C says what was done until then.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from millrace.addresses import Address, parse_listen_address
from millrace.errors import MalformedValueError
from millrace.extras import require
from millrace_ops.cli.interrupted import telling

if TYPE_CHECKING:
    from rich.progress import Progress

    from millrace_pipelines.mirror.service import MirrorService
    from millrace_pipelines.mirror.settings import MirrorSettings


def run(config: str | None, options: Mapping[str, Any], *, once: bool, admin: str | None = None) -> None:
    """Runs a mirror until it is stopped or, with `once`, until what was there is mirrored.

    Raises typer.Exit with status 1 where something of that has stopped.
    """
    from millrace_pipelines.mirror.service import MirrorService
    from millrace_pipelines.mirror.settings_file import read_settings

    settings = read_settings(config, options)
    with _bar() as bar, MirrorService(settings, tell=_tell) as service, _admin(admin, settings, service):
        shown = _Shown(service, bar)
        with telling(shown.summary), _stopped_by_sigterm(service):
            service.run(once=once, looks=shown.look)
    print(shown.summary())
    stopped = service.stopped()
    for reason in sorted(set(stopped.values()) - shown.told):
        _tell(reason)
    if once and stopped:
        raise typer.Exit(1)


@contextmanager
def _admin(text: str | None, settings: MirrorSettings, service: MirrorService) -> Iterator[None]:
    """Makes the context in which the admin endpoint is served, where one is asked for, and says where."""
    if text is None:
        yield
        return
    require("--admin", "broker")
    from millrace_pipelines.mirror.admin import serving_admin

    with serving_admin(_address(text), settings, service) as address:
        _tell(f"metrics at http://{address}/metrics")
        yield


def _address(text: str) -> Address:
    try:
        return parse_listen_address(text)
    except MalformedValueError as error:
        raise typer.BadParameter(str(error), param_hint="--admin") from None


def _tell(line: str) -> None:
    sys.stdout.flush()
    print(f"millrace: {line}", file=sys.stderr, flush=True)


@contextmanager
def _stopped_by_sigterm(service: MirrorService) -> Iterator[None]:
    former = signal.signal(signal.SIGTERM, lambda *_: service.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _bar() -> Progress:
    """Returns a progress bar on stderr, which shows nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class _Shown:
    """What is shown of a service: the bar, and a line for each topic that has come to its end."""

    def __init__(self, service: MirrorService, bar: Progress) -> None:
        self._service = service
        self._bar = bar
        self._task = bar.add_task("looking at topics", total=None)
        self._finished: set[str] = set()
        self.told: set[str] = set()

    def look(self) -> None:
        """Moves the bar, and writes the lines of topics that are done."""
        lines = self._service.counters.read()
        self.told |= {line.stop.reason for line in lines.values() if line.stop is not None}
        ends = self._service.ends()
        done = sum(min(lines[one].next_offset or 0, end) for one, end in ends.items() if one in lines)
        self._bar.update(self._task, completed=done, total=sum(ends.values()) or None, description=self._figures())
        for source, topic in sorted({(one.source, one.what.topic) for one in ends}):
            self._finish(f"{source}/{topic}", [one for one in ends if (one.source, one.what.topic) == (source, topic)])

    def summary(self) -> str:
        """Returns what was mirrored, as a sentence."""
        return f"mirrored {self._figures()}"

    def _figures(self) -> str:
        lines = self._service.counters.read().values()
        records, size = sum(one.records for one in lines), sum(one.size_bytes for one in lines)
        return f"{_records(records)}, {size / 2**20:,.1f} MiB"

    def _finish(self, key: str, partitions: list[Any]) -> None:
        if key in self._finished:
            return
        lines, ends = self._service.counters.read(), self._service.ends()
        own = [(lines[one], ends[one]) for one in partitions if one in lines]
        if len(own) < len(partitions) or any(line.stop or (line.next_offset or 0) < end for line, end in own):
            return
        self._finished.add(key)
        count = sum(line.records for line, _ in own)
        print(f"{key}: {_records(count)} {'is' if count == 1 else 'are'} at {partitions[0].what.target}", flush=True)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
