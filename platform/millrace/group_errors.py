"""What a coordinator answers to the members of its groups: the branch `GroupError` of the tree in `millrace.errors`."""

from __future__ import annotations

from millrace.error_codes import ErrorCode
from millrace.root_error import MillraceError


class GroupError(MillraceError):
    """A group can't be served here and now, or refuses what its member asks."""


class CoordinatorNotAvailableError(GroupError):
    """The topic of committed offsets is not there, or can't be written."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    retriable = True


class CoordinatorLoadInProgressError(GroupError):
    """The group's partition is being read."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    retriable = True


class InvalidGroupIdError(GroupError):
    """A group id that can't be kept."""

    code = ErrorCode.INVALID_GROUP_ID


class NotCoordinatorError(GroupError):
    """Another broker leads the group's partition."""

    code = ErrorCode.NOT_COORDINATOR
    retriable = True


class InvalidGroupRequestError(GroupError):
    """A field of the request that can't be as it is."""

    code = ErrorCode.INVALID_REQUEST


class GroupIdNotFoundError(GroupError):
    """No such group, or it is of another type."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class UnknownMemberIdError(GroupError):
    """The group has no member of this id: it has left, or was removed after a timeout."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class GroupMaxSizeReachedError(GroupError):
    """The group takes no more members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedMemberEpochError(GroupError):
    """The member is not at the epoch that the coordinator knows: it gives up its partitions and joins again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(GroupError):
    """Offsets of a member that is not at this epoch (any more); it goes on after its next heartbeat."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    retriable = True


class FencedInstanceIdError(GroupError):
    """Another member holds this static member's instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(GroupError):
    """The instance id is in use by a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(GroupError):
    """A server-side assignor that this broker does not have."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(GroupError):
    """A subscription's regular expression that can't be read."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class IllegalGenerationError(GroupError):
    """A generation that is not the group's."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgressError(GroupError):
    """The member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS
    retriable = True


class InconsistentGroupProtocolError(GroupError):
    """Protocols of which the group's members have none in common."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
