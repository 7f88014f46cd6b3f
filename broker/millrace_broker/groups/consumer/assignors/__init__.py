"""Server-side assignors (KIP-848): `uniform`, the first and so the default, and `range`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millrace_broker.groups.consumer.assignors.range import assign_range
from millrace_broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from millrace_broker.groups.consumer.assignors.uniform import assign_uniform
from millrace_broker.groups.consumer.member import Assignment

__all__ = ["ASSIGNORS", "Assignor", "GroupSpec", "MemberSpec"]

Assignor = Callable[[GroupSpec], dict[str, Assignment]]
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
