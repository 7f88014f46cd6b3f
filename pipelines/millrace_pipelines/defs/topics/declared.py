"""Topics as they are declared: made where they are missing, and compared with what the cluster has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.errors import MillraceError, TopicExistsError
from millrace_pipelines.declaration.attributes import TableDeclaration
from millrace_pipelines.declaration.cluster import DeclaredTable

DEFAULT_COUNT = -1


class Difference(NamedTuple):
    """A setting of a topic that is not as declared; `there` is None for one that the cluster does not know."""

    setting: str
    declared: str
    there: str | None


def declared_settings(declared: TableDeclaration) -> dict[str, str]:
    """Returns a topic's declared settings as the cluster writes them: `true`, `604800000`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in declared.config.items()
    }


class Creation(NamedTuple):
    """The topics that were created, and by topic why others were refused."""

    created: list[str]
    refused: dict[str, str]


def create_missing(cluster: Cluster, tables: Iterable[DeclaredTable], there: Iterable[str]) -> Creation:
    """Creates the topics that are declared by name and are not there; one that is refused stops no other."""
    known, created, refused = set(there), [], {}
    for table in tables:
        if table.declared.topic is None or table.topic in known:
            continue
        try:
            partitions = table.declared.partitions or DEFAULT_COUNT
            Admin(cluster).create_topic(table.topic, partitions, DEFAULT_COUNT, declared_settings(table.declared))
        except TopicExistsError:  # another client was faster, or a broker answered without its topics
            continue
        except MillraceError as error:
            refused[table.topic] = str(error)
        else:
            created.append(table.topic)
    return Creation(created, refused)


def differences(cluster: Cluster, table: DeclaredTable) -> list[Difference]:
    """Returns how a topic differs from its declaration; raises the errors of `millrace.client`."""
    found: list[Difference] = []
    wanted = table.declared.partitions
    partitions = len(cluster.metadata([table.topic]).topic(table.topic).partitions)
    if wanted is not None:
        found.append(Difference("partitions", str(wanted), str(partitions)))
    settings = declared_settings(table.declared)
    described = Configs(cluster).describe(ResourceKind.TOPIC, table.topic) if settings else []
    there = {one.name: one.value for one in described}
    found += [Difference(name, value, there.get(name)) for name, value in settings.items()]
    return [one for one in found if not is_same(one.declared, one.there)]


def is_same(declared: str, there: str | None) -> bool:
    """Returns whether two settings are equal, where numbers such as 0.5 and 0.50 are."""
    if there is None or declared == there:
        return declared == there
    try:
        return float(declared) == float(there)
    except ValueError:
        return _listed(declared) == _listed(there)


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")]


def says(differing: list[Difference], settings: Mapping[str, str]) -> str:
    """Returns what a comparison found, in a sentence."""
    if differing:
        parts = "; ".join(
            f"{one.setting} is {one.there or 'unknown to the cluster'}, declared {one.declared}" for one in differing
        )
        return f"The topic is not as declared: {parts}."
    return f"The topic has its declared partitions and settings, of which there are {len(settings)}."
