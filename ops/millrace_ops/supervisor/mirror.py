"""The mirror of a platform: a process that brings topics of other clusters into it, as `millrace mirror` does.

The settings' file may leave out the target, which then is the platform itself, reached as its administrator.

    millrace mirror --config FILE [--target HOST:PORT --target-client-config DIR/secrets/admin.properties]

It is started again whenever it ends, since it keeps nothing on disk. A source that is away ends nothing: it is waited
for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from millrace.client import Groups
from millrace.errors import BrokerError, ErrorCode, MillraceError
from millrace_ops.supervisor.supervised import Service
from millrace_pipelines.mirror.own_target import settings_into, target_options
from millrace_pipelines.mirror.settings import MirrorSettings, Side
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import State, States

PART = "mirror"
TIMEOUT_MS = "5000"
OPTIONS = {"bootstrap": "--target", "client_config": "--target-client-config"}


class PlatformMirror:
    """The mirror by a file of settings, whose target is the platform unless the file names another cluster.

    Args:
        config: The path of the file.

    Raises:
        InvalidConfigError: The file can't be read, or something in it is wrong.
    """

    def __init__(self, config: str) -> None:
        self._config = config
        settings_into(config)

    def settings(self, bootstrap: str, client_config: str | None) -> MirrorSettings:
        """Returns the settings, with the platform's address and client properties where the file names no target."""
        return settings_into(self._config, bootstrap, client_config)

    def service(self, bootstrap: str, client_config: str | None) -> Service:
        """Returns the service of the mirror; it is ready as soon as it runs, since it waits for its clusters."""
        target = target_options(self._config, bootstrap, client_config).get("target", {})
        options = [part for name, value in target.items() for part in (OPTIONS[name], value)]
        return Service(
            name=PART,
            command=(sys.executable, "-u", "-m", "millrace_ops", "mirror", "--config", self._config, *options),
            restarts=True,
            is_ready=lambda _: True,
        )


def mirror_problem(settings: MirrorSettings) -> str:
    """Returns what is wrong with a mirror that runs; "" where all is mirrored, or on its way."""
    return "; ".join(_problems(settings))


def _problems(settings: MirrorSettings) -> Iterator[str]:
    """Yields which clusters don't answer, which sources nobody mirrors, and why topics are stopped."""
    for one in settings.sources:
        if problem := _reach_problem(one):
            yield f"source {one.name}: {problem}"
    try:
        with _hasty(settings.target).cluster() as target:
            for one in settings.sources:
                if not _has_member(Groups(target), group_of(one.name)):
                    yield f"source {one.name}: nobody mirrors it now; the log is {PART}.log"
            names = {one.name for one in settings.sources}
            states = States(target).read()
            yield from (
                f"{key}: {one.reason}"
                for key, one in sorted(states.items())
                if one.source in names and one.state is State.STOPPED
            )
    except MillraceError as error:
        yield f"target: {error}"


def _reach_problem(side: Side) -> str:
    try:
        with _hasty(side).cluster() as cluster:
            cluster.metadata([])
    except MillraceError as error:
        return str(error)
    return ""


def _hasty(side: Side) -> Side:
    return replace(side, properties={**side.properties, "request.timeout.ms": TIMEOUT_MS})


def _has_member(groups: Groups, group_id: str) -> bool:
    try:
        return bool(groups.describe(group_id).members)
    except BrokerError as error:
        if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
