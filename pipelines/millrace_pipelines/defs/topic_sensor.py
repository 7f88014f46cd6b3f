"""The sensor of a cluster's topics: it makes those that are declared, reports offsets, and finds new and gone ones.

It keeps the definitions up to the cluster's topics: their state is written, and the code location is loaded again.

    look ─► new topics, or topics that two looks in a row lack ─► state (declaration.state) ─► reload by the webserver
                             another environment ───────────────►

Where no webserver is named (MILLRACE_DAGSTER_URL), the state is written, and the tick says that a reload is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from millrace.errors import PlatformError
from millrace_pipelines.declaration.cluster import DeclaredCluster
from millrace_pipelines.declaration.state import (
    Environment,
    State,
    environment_of,
    read_state,
    read_topics,
    write_state,
)
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words
from millrace_pipelines.defs.topic_checks import (
    Creation,
    check_evaluations,
    checked_topics,
    create_missing,
    stale_checks,
)
from millrace_pipelines.defs.topic_offsets import (
    Look,
    TopicChanges,
    cursor_of,
    materializations,
    read_topic_offsets,
    seen_by,
    topic_changes,
)
from millrace_pipelines.http import post_json

RELOAD_TIMEOUT_S = 120.0
RELOAD = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on UnauthorizedError { message }
    ... on ReloadNotSupported { message }
    ... on RepositoryLocationNotFound { message }
  }
}"""
LOCATION = "millrace"


def update_state(path: Path, added: Iterable[str], gone: Iterable[str], environment: Environment) -> State:
    """Adds topics to the state, removes those that are gone, notes the environment, and returns the state.

    Raises PlatformError where it can't be written.
    """
    before = read_state(path)
    after = State((before.topics | frozenset(added)) - frozenset(gone), environment)
    if after != before:
        try:
            write_state(path, after)
        except OSError as error:
            raise PlatformError(f"the topics of the cluster can't be kept: {error}") from error
    return after


def reload_definitions(url: str, location: str) -> None:
    """Has the webserver at `url` load a code location again.

    Raises:
        ServiceUnreachableError: It can't be reached.
        PlatformError: It refuses, or the definitions can't be loaded.
    """
    answer = post_json(
        f"{url.rstrip('/')}/graphql",
        {"query": RELOAD, "variables": {"name": location}},
        timeout_s=RELOAD_TIMEOUT_S,
        advice="MILLRACE_DAGSTER_URL names Dagster's webserver",
        use_proxy=False,
    )
    match answer:
        case {"data": {"reloadRepositoryLocation": {"locationOrLoadError": {"__typename": "RepositoryLocation"}}}}:
            return
        case {"data": {"reloadRepositoryLocation": {"locationOrLoadError": {"message": str(message)}}}}:
            raise PlatformError(f"the definitions of {location} can't be loaded: {message}")
        case _:
            raise PlatformError(f"{url} did not load {location} again: {str(answer)[:500]}")


def topics_sensor(cluster: DeclaredCluster, state: Path) -> dg.SensorDefinition:
    """Returns the sensor, which runs by default.

    Args:
        cluster: The cluster as it is defined now.
        state: The file of the component's state.
    """

    @dg.sensor(
        name=f"{cluster.name}_topics",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Creates declared topics that are missing, reports the offsets of topics that moved, and loads the "
        "definitions again for new topics and for those that two looks in a row lack.",
    )
    def topics(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Compares the cluster with the last look, and its topics with those that the definitions know."""
        millrace = resource_of(context, cluster.name)
        with failing_in_words(), millrace.cluster() as client:
            look = read_topic_offsets(client)
            creation = create_missing(client, cluster.tables, look.topics.keys() | look.failed.keys())
            changes = topic_changes(seen_by(context.cursor), look, read_topics(state))
            moved = {topic.topic for topic in changes.moved}
            checks = list(check_evaluations(client, stale_checks(context.instance, checked_topics(cluster), moved)))
        log_failed(context, look)
        for name, reason in creation.refused.items():
            context.log.error("topic %s can't be created: %s", name, reason)
        with failing_in_words():
            now = update_state(state, changes.added, changes.gone, environment_of(os.environ))
            told = _told(context, cluster, millrace, now)
        keys = {table.topic: table.keys.topic for table in cluster.tables}
        return dg.SensorResult(
            asset_events=[*materializations(changes.moved, keys), *checks],
            skip_reason=summary(look, changes) + created(creation) + told,
            cursor=cursor_of(changes.seen),
        )

    return topics


def _told(context: dg.SensorEvaluationContext, cluster: DeclaredCluster, millrace: MillraceResource, now: State) -> str:
    """Has the definitions loaded again where they are of another state than there is now; returns what to say."""
    if now == State(cluster.known_topics, cluster.environment):
        return ""
    if not millrace.dagster_url:
        return "; the definitions know of these changes once the code location is loaded again"
    origin = context.code_location_origin
    reload_definitions(millrace.dagster_url, LOCATION if origin is None else origin.location_name)
    return "; the definitions were loaded again"


def created(creation: Creation) -> str:
    """Returns which topics a tick created, as the end of its summary; nothing where there were none to create."""
    parts = [f"created {', '.join(creation.created)}"] if creation.created else []
    parts += [f"{', '.join(creation.refused)} refused, as the log of this tick says"] if creation.refused else []
    return "".join(f"; {part}" for part in parts)


def log_failed(context: dg.SensorEvaluationContext, look: Look) -> None:
    """Writes each topic that a look leaves out to the log of the tick, with the reason."""
    for name, reason in look.failed.items():
        context.log.warning("topic %s is left out: %s", name, reason)


def left_out(look: Look) -> str:
    """Returns how many topics a look leaves out, as the end of a tick's summary; nothing where it has all."""
    return f", {len(look.failed)} left out, as the log of this tick says" if look.failed else ""


def summary(look: Look, changes: TopicChanges) -> str:
    """Returns what a tick found, in one line: "12 topics, none moved"."""
    missing = len(changes.seen.missing)
    parts = [
        counted(len(look.topics) + len(look.failed), "topic"),
        f"{len(changes.moved) or 'none'} moved",
        f"{len(changes.gone)} gone" if changes.gone else "",
        f"{missing} missing, and gone if the next look lacks them too" if missing else "",
    ]
    return ", ".join(filter(None, parts)) + left_out(look)
