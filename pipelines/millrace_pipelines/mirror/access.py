"""Who may use mirrored topics, and how much, as at the source: ACLs, quotas of clients, and SCRAM users, where asked.

    ACLs      each entry that covers a topic at the source, by its name, a prefix or `*`, becomes one on the mirrored
              topic's own name: it allows nothing beyond what is mirrored
              A topic that is copied is written by the mirror alone: what allows to write is left out, and what
              allows everything allows to read, as MirrorMaker 2 has it. One that is followed refuses writers by
              itself, and has all entries; so has one while it is switched over
    quotas    of users, client ids and addresses, by the names that they have at the source
    users     see `scram_users`

Entries, quotas and users that go at the source go at the target, as far as this instance has seen them; what only the
target has, stays. Topics that were switched over are left as they are. One kind's failure stops no other one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from millrace.client import Cluster, EntityQuotas, Quotas
from millrace.client.access import create_acls, delete_acls, find_acls
from millrace.errors import MillraceError
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace_pipelines.mirror.rights import ON_CLUSTER, TARGET, needing, side_of
from millrace_pipelines.mirror.scram_users import ScramUsers
from millrace_pipelines.mirror.settings import MirrorSettings, Source, Way
from millrace_pipelines.mirror.states import State, States, TopicState

logger = logging.getLogger(__name__)

OF_TOPICS = AclFilter(ResourceType.TOPIC)
Entity = frozenset[tuple[str, str | None]]  # names by type


class AccessKeeper:
    """Keeps who may use the mirrored topics of one source; `keep` makes one pass. Belongs to its clusters' thread."""

    def __init__(
        self, settings: MirrorSettings, source: Source, at_source: Cluster, at_target: Cluster, states: States
    ) -> None:
        self._source = source
        self._at_source = at_source
        self._at_target = at_target
        self._states = states
        self._users = ScramUsers(source, settings.target)
        self._kinds: dict[str, Callable[[], object]] = {
            kind: keep
            for kind, is_asked, keep in (
                ("ACLs", settings.acls, self._keep_acls),
                ("quotas", settings.quotas, self._keep_quotas),
                ("users", settings.users, self._users.keep),
            )
            if is_asked
        }
        self._acls: frozenset[AclBinding] = frozenset()
        self._quotas: dict[Entity, Mapping[str, float]] = {}
        self.faults: dict[str, str] = {}

    def keep(self) -> Mapping[str, str]:
        """Makes all that was asked for as at the source; returns why not, by kind, and logs what is new of it."""
        found: dict[str, str] = {}
        for kind, keep in self._kinds.items():
            try:
                keep()
            except MillraceError as error:
                found[kind] = str(error)
                if self.faults.get(kind) != found[kind]:
                    logger.warning("%s: %s are not mirrored: %s", self._source.name, kind, error)
        self.faults = found
        return found

    def _keep_acls(self) -> None:
        states = [one for one in self._states.read().values() if one.source == self._source.name]
        with needing(side_of(self._source.name), cluster=f"Describe {ON_CLUSTER}"):
            wanted = mirrored_acls(find_acls(self._at_source, OF_TOPICS), states)
        with needing(TARGET, cluster=f"Describe {ON_CLUSTER}"):
            there = frozenset(find_acls(self._at_target, OF_TOPICS))
        mirrored = {one.target_topic for one in states if one.state is not State.SWITCHED}
        gone = [one for one in (self._acls - wanted) & there if one.pattern.name in mirrored]
        with needing(TARGET, cluster=f"Alter {ON_CLUSTER}"):
            if missing := sorted(wanted - there):
                create_acls(self._at_target, missing)
            if gone:
                delete_acls(self._at_target, [_only(one) for one in sorted(gone)])
        self._acls = wanted

    def _keep_quotas(self) -> None:
        with needing(side_of(self._source.name), cluster=f"DescribeConfigs {ON_CLUSTER}"):
            wanted = _by_entity(Quotas(self._at_source).describe())
        with needing(TARGET, cluster=f"DescribeConfigs {ON_CLUSTER}"):
            there = _by_entity(Quotas(self._at_target).describe())
        for entity in wanted.keys() | self._quotas.keys():
            had = there.get(entity, {})
            told = wanted.get(entity, {})
            values = {name: value for name, value in told.items() if had.get(name) != value}
            unset = [name for name in self._quotas.get(entity, {}) if name not in told and name in had]
            if values or unset:
                with needing(TARGET, cluster=f"AlterConfigs {ON_CLUSTER}"):
                    Quotas(self._at_target).alter(dict(entity), values, unset)
        self._quotas = wanted


def mirrored_acls(bindings: Iterable[AclBinding], states: Iterable[TopicState]) -> frozenset[AclBinding]:
    """Returns the entries on mirrored topics that follow from those on topics of the source."""
    told = list(bindings)
    found = set()
    for state in states:
        if state.target_topic_id is None or state.state is State.SWITCHED:
            continue
        covering = AclFilter(ResourceType.TOPIC, state.topic, PatternType.MATCH)
        pattern = ResourcePattern(ResourceType.TOPIC, state.target_topic)
        entries = (one.acl for one in told if covering.finds_resource(one.pattern))
        is_whole = state.way is Way.FOLLOW or state.state is State.SWITCHING
        allowed = entries if is_whole else (entry for one in entries if (entry := _without_writing(one)) is not None)
        found |= {AclBinding(pattern, one) for one in allowed}
    return frozenset(found)


def _without_writing(acl: Acl) -> Acl | None:
    """Returns an entry for a topic that the mirror alone may write, None where there is none."""
    if acl.permission is not PermissionType.ALLOW:
        return acl
    if acl.operation is AclOperation.WRITE:
        return None
    return acl._replace(operation=AclOperation.READ) if acl.operation is AclOperation.ALL else acl


def _only(binding: AclBinding) -> AclFilter:
    """Returns the filter that finds this entry alone."""
    pattern, acl = binding
    return AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _by_entity(told: Iterable[EntityQuotas]) -> dict[Entity, Mapping[str, float]]:
    return {frozenset(one.entity.items()): one.quotas for one in told}
