"""Waits until all instances of a mirror know the states as they are now, and shuts out those that hang.

A command that has written states joins the group of the instances as an observer. For that all of them let go of their
partitions, join again, and read the states before they take any. An instance that hangs is thrown out of the group: as
soon as it wakes up, the group refuses its progress, and a followed log what it sends.
"""

from __future__ import annotations

from millrace.client import Cluster, Groups
from millrace.client.group_member import GroupMember
from millrace.errors import BrokerError, ClientError, ErrorCode
from millrace_pipelines.mirror.sharing import OBSERVER, PROTOCOL, PROTOCOL_TYPE, assign, decode_members, group_of

SESSION_TIMEOUT_MS = 10_000
TIMEOUT_S = 60.0  # of which an instance that is dead or hangs takes ten
POLL_S = 0.5


class BarrierError(ClientError):
    """The group of the instances does not come to rest."""


def instances(target: Cluster, mirror: str) -> int:
    """Returns how many members the group of a mirror's instances has; raises MillraceError if it can't be asked."""
    try:
        return len(Groups(target).describe(group_of(mirror)).members)
    except BrokerError as error:
        if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return 0


def await_instances(target: Cluster, mirror: str) -> int:
    """Returns, once all instances have taken what was written into the states before, how many there are.

    Raises BarrierError where they have not within a minute.
    """
    if not instances(target, mirror):
        return 0
    deadline_s = target.clock.monotonic_s() + TIMEOUT_S
    with GroupMember(
        target,
        group_of(mirror),
        protocol_type=PROTOCOL_TYPE,
        protocol=PROTOCOL,
        metadata=OBSERVER,
        assign=assign,
        session_timeout_ms=SESSION_TIMEOUT_MS,
    ) as member:
        while (assignment := member.poll(POLL_S)) is None:
            if target.clock.monotonic_s() > deadline_s:
                raise BarrierError(
                    f"group {group_of(mirror)} has not come to rest within {TIMEOUT_S:.0f} s; run the command again"
                )
        return len(decode_members(assignment))
