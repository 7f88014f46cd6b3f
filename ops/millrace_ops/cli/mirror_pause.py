"""`millrace mirror pause` and `resume`: whether topics are mirrored at present (`mirror.steering`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.mirror_options import MirrorAccess, MirroredTopics

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace_pipelines.mirror.settings import Accept
    from millrace_pipelines.mirror.states import TopicState


def pause(names: MirroredTopics = None, *, access: MirrorAccess) -> None:
    """Pause topics, all by default: nothing of them is mirrored until they are resumed, where they have been."""
    from millrace_pipelines.mirror.steering import paused

    with _changed(access, names, paused) as (states, target):
        _tell(states, "paused", target)


def resume(
    names: MirroredTopics = None,
    *,
    access: MirrorAccess,
    accept_lost_offsets: Annotated[
        bool, typer.Option("--accept-lost-offsets", help="Go on behind offsets that the source has deleted.")
    ] = False,
    accept_recreated_topic: Annotated[
        bool, typer.Option("--accept-recreated-topic", help="Go on with a topic that was deleted and created again.")
    ] = False,
    accept_truncated_log: Annotated[
        bool, typer.Option("--accept-truncated-log", help="Go on where the source's log was cut.")
    ] = False,
) -> None:
    """Resume topics that are paused or have stopped, all by default: mirroring goes on where it has been."""
    from millrace_pipelines.mirror.settings import Accept
    from millrace_pipelines.mirror.steering import resumed

    given = (accept_lost_offsets, accept_recreated_topic, accept_truncated_log)
    accepted: tuple[Accept, ...] = tuple(one for one, is_given in zip(Accept, given, strict=True) if is_given)
    with _changed(access, names, lambda state: resumed(state, accepted)) as (states, target):
        _tell(states, "resumed", target)


@contextmanager
def _changed(
    access: MirrorAccess, names: list[str] | None, change: Callable[[TopicState], TopicState]
) -> Iterator[tuple[list[TopicState], Cluster]]:
    """Makes the context in which the states are changed, with them and the target."""
    from millrace_pipelines.mirror.states import States
    from millrace_pipelines.mirror.steering import chosen

    settings = access.settings()
    with settings.target.cluster() as target, settings.target.producer(producer_type="async") as producer:
        states = States(target, producer)
        found = chosen(states.read(), {one.name for one in settings.sources}, names or [])
        changed = [change(one) for one in found if names or _is_meant(one, change)]
        states.write(*changed)
        yield changed, target


def _is_meant(state: TopicState, change: Callable[[TopicState], TopicState]) -> bool:
    """Returns whether a topic that is not named is one for which the change is possible."""
    from millrace_pipelines.mirror.steering import SteeringError

    try:
        change(state)
    except SteeringError:
        return False
    return True


def _tell(states: Iterable[TopicState], what: str, target: Cluster) -> None:
    from millrace_pipelines.mirror.barrier import await_instances

    by_mirror: dict[str, list[str]] = {}
    for one in states:
        by_mirror.setdefault(one.source, []).append(one.key)
    if not by_mirror:
        print("no topic is mirrored")
    for mirror, keys in by_mirror.items():
        count = await_instances(target, mirror)
        runs = {0: "no instance runs", 1: "the instance obeys"}.get(count, f"{count} instances obey")
        for key in keys:
            print(f"{key}: {what}; {runs}")
