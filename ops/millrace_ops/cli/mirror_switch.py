"""`millrace mirror switch-over` and `switch-back`: topics move to their mirrors, and home again.

The former makes mirrored topics ordinary ones (`mirror.switch_over`); the latter has their former source mirror them
(`mirror.switch_back`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import BrokerUnreachableError
from millrace_ops.cli.interrupted import telling
from millrace_ops.cli.mirror_options import MirrorAccess, MirroredTopics
from millrace_ops.cli.output import confirm, iso_time, one_line, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace_pipelines.mirror.group_side import GroupSide
    from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source
    from millrace_pipelines.mirror.states import TopicState
    from millrace_pipelines.mirror.switch_back import SwitchedBack
    from millrace_pipelines.mirror.switch_over import SwitchedOver

COLUMNS = ("topic", "target topic", "partition", "source offset", "target offset")


def switch_over(
    names: MirroredTopics = None,
    *,
    access: MirrorAccess,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait until all is mirrored.")
    ] = 60.0,
    source_is_gone: Annotated[
        bool, typer.Option("--source-is-gone", help="Do it without the source, and say what is lost or not known.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="If the source can't be reached, do it without; do not ask.")
    ] = False,
) -> None:
    """Make mirrored topics ordinary ones, to be written and read at the target; all topics by default.

    Stop the writers and readers at the source first. Run the command again to complete what was interrupted.
    """
    settings = access.settings()
    done: list[SwitchedOver] = []
    with telling(lambda: f"{len(done)} topics are switched over; the same command goes on"):
        for source in settings.sources:
            try:
                for one in _switched(settings, source, names or [], timeout, is_planned=not source_is_gone):
                    done.append(one)
                    _tell_one(one)
            except BrokerUnreachableError as error:
                if source_is_gone or not _confirmed(source.name, error, is_confirmed=yes):
                    raise
                for one in _switched(settings, source, names or [], timeout, is_planned=False):
                    done.append(one)
                    _tell_one(one)
    rows = [
        (one.state.key, one.state.target_topic, partition, end, one.state.target_ends.get(partition))
        for one in done
        for partition, end in sorted(one.state.source_ends.items())
    ]
    print_table(COLUMNS, rows, empty="there is nothing to switch over")


def switch_back(
    names: MirroredTopics = None,
    *,
    access: MirrorAccess,
    recreate: Annotated[
        bool,
        typer.Option(
            "--recreate", help="Delete topics whose logs can't be followed on, and mirror them from the start."
        ),
    ] = False,
) -> None:
    """Have the former source mirror topics that were switched over, all by default, from where they are written now.

    The source is the cluster that has them now, under a name of its own; the target is the former source. Run a mirror
    with these two afterwards, and switch over to the target to be home.
    """
    settings = access.settings()
    done: list[SwitchedBack] = []
    with telling(lambda: f"{len(done)} topics are switched back; the same command goes on"):
        for source in settings.sources:
            for one in _switched_back(settings, source, names or [], recreate=recreate):
                done.append(one)
                for extra in one.unshared:
                    _tell(f"{extra} that {one.state.topic} lacks: groups go on behind them")
    rows = [(one.state.key, one.state.target_topic, one.state.way.value) for one in done]
    print_table(("topic", "target topic", "way"), rows, empty="there is nothing to switch back")


def _switched_back(
    settings: MirrorSettings, source: Source, names: list[str], *, recreate: bool
) -> Iterator[SwitchedBack]:
    from millrace_pipelines.mirror.states import States
    from millrace_pipelines.mirror.steering import chosen
    from millrace_pipelines.mirror.switch_back import SwitchBack

    with ExitStack() as stack:
        there = _side(source, stack.enter_context(source.cluster()), stack)
        here = _side(settings.target, stack.enter_context(settings.target.cluster()), stack)
        producer = stack.enter_context(settings.target.producer(producer_type="async"))
        states = States(here.cluster, producer)
        states.create()
        back = SwitchBack(source, there, here, states, producer, way=settings.way, recreate=recreate)
        found = {one.key: one for one in back.topics() if names or source.has_topic(one.target_topic)}
        if not found:
            back.check_direction()
        yield from back.run(chosen(found, {one.source for one in found.values()}, names))


def _confirmed(source: str, error: BrokerUnreachableError, *, is_confirmed: bool) -> bool:
    return confirm(
        f"Source {source} can't be reached ({one_line(str(error))}). Switch over without it?", is_confirmed=is_confirmed
    )


def _switched(
    settings: MirrorSettings, source: Source, names: list[str], timeout_s: float, *, is_planned: bool
) -> Iterator[SwitchedOver]:
    from millrace_pipelines.mirror.states import States
    from millrace_pipelines.mirror.steering import chosen
    from millrace_pipelines.mirror.switch_over import SwitchOver

    with ExitStack() as stack:
        at_target = stack.enter_context(settings.target.cluster())
        states = States(at_target, stack.enter_context(settings.target.producer(producer_type="async")))
        found = _of(source, chosen(states.read(), {one.name for one in settings.sources}, names), names)
        there = None
        if is_planned:
            there = _side(source, stack.enter_context(source.cluster()), stack)
        here = _side(settings.target, at_target, stack)
        yield from SwitchOver(source, there, here, states, tell=_tell, timeout_s=timeout_s).run(found)


def _of(source: Source, states: list[TopicState], names: list[str]) -> list[TopicState]:
    return [one for one in states if one.source == source.name and (names or source.has_topic(one.topic))]


def _side(side: Side, cluster: Cluster, stack: ExitStack) -> GroupSide:
    from millrace.client.consumer.group_offsets import open_session
    from millrace_pipelines.mirror.group_side import GroupSide

    if side.zookeeper is None:
        return GroupSide(cluster)
    return GroupSide(cluster, stack.enter_context(closing(open_session(side.zookeeper))))


def _tell_one(one: SwitchedOver) -> None:
    print(f"{one.state.key}: {one.state.target_topic} is a topic as any other", flush=True)
    if one.aborted:
        _tell(f"{one.state.key}: {one.aborted} open transactions were aborted")
    for loss in one.losses:
        since = "" if loss.known_ms < 0 else f" (as it was at {iso_time(loss.known_ms)})"
        _tell(f"{loss}{since}")
    for group in one.behind:
        _tell(str(group))


def _tell(line: str) -> None:
    sys.stdout.flush()
    print(f"millrace: {line}", file=sys.stderr, flush=True)
