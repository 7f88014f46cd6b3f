"""What a consumer group is and what it allows, by its stored state alone."""

from __future__ import annotations

from millrace.errors import ErrorCode
from millrace_broker.groups.consumer.records import encoded
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.groups.group import Committer
from millrace_broker.groups.records import CommittedOffset, Record
from millrace_broker.properties.group_config import CONSUMER

FIRST_COMMIT_VERSION_WITH_EPOCH = 9


class ConsumerGroupFacts:
    """The stored state, and whether a change of it is being stored."""

    type = CONSUMER
    protocol_type = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState(group_id)
        self.is_storing = False

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it."""
        return self.state.state_name

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, nor a change on its way that may bring one."""
        return not self.state.members and not self.is_storing

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Checks that a member is at its epoch and its client knows epochs; any client may commit to an empty group."""
        if committer.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        member = self.state.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.metadata.classic is not None
        knows_epochs = committer.is_transactional or committer.version >= FIRST_COMMIT_VERSION_WITH_EPOCH
        if not is_classic and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if committer.generation == member.current.epoch:
            return ErrorCode.NONE
        has_generations = is_classic or committer.is_transactional
        return ErrorCode.ILLEGAL_GENERATION if has_generations else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Checks that a member is at its epoch; a client that gives no member id may always fetch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.metadata.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_delete(self) -> ErrorCode:
        """Checks that the group is empty."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> ErrorCode:
        """Allows it always; offsets of topics with a subscription are refused one by one."""
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, by name or by pattern."""
        return topic in self.state.topic_names()

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns the time of the commit."""
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[Record]:
        """Returns the records that remove the group."""
        return [encoded(record) for record in self.state.tombstones()]
