"""Faults of a mirror that follows, planted to be found; each function plants the one that its name tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.errors import CorruptRecordError, MillraceError, OffsetOutOfRangeError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.mirror import follow
from millrace_pipelines.mirror.follow import Follow, Look, Phase
from millrace_pipelines.mirror.same_records import Sameness
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


@FAULTS.add
def compares_when_it_begins(patch: pytest.MonkeyPatch) -> None:
    """Compares no more with the source once it has begun, whatever leader the source has."""
    real_take, real_judged = Follow._take, Follow._judged  # noqa: SLF001

    def take(self: Any, fetched: Any) -> None:
        self._leader_epoch = NO_LEADER_EPOCH
        real_take(self, fetched)

    def judged(self: Any, look: Look) -> Any:
        return look.target_end if self.next_offset else real_judged(self, look)

    patch.setattr(Follow, "_take", take)
    patch.setattr(Follow, "_judged", judged)


@FAULTS.add
def goes_on_where_it_remembers(patch: pytest.MonkeyPatch) -> None:
    """Takes the log for as long as it was before the target has lost its leader."""
    real = Follow._judged  # noqa: SLF001

    def judged(self: Any, look: Look) -> Any:
        found = real(self, look)
        return max(found, self.next_offset) if isinstance(found, int) else found

    patch.setattr(Follow, "_judged", judged)


@FAULTS.add
def appends_at_whatever_end_it_is_told(patch: pytest.MonkeyPatch) -> None:
    """Sends its piece again for the end that the target tells, if others have appended meanwhile."""
    real = Follow.appended

    def appended(self: Any, end_offset: int, error: MillraceError | None) -> Any:
        if isinstance(error, OffsetOutOfRangeError) and self._pieces and self.phase is Phase.RUN:
            self._pieces[0] = self._pieces[0]._replace(end_offset=end_offset)
            return None
        return real(self, end_offset, error)

    patch.setattr(Follow, "appended", appended)


@FAULTS.add
def drops_pieces_it_has_no_answer_for(patch: pytest.MonkeyPatch) -> None:
    """Takes a piece for appended when its answer is lost, and the next one for one that fits behind a gap."""
    real = Follow.appended

    def appended(self: Any, end_offset: int, error: MillraceError | None) -> Any:
        if error is not None and self.phase is Phase.RUN and self._pieces:
            self._pieces.popleft()
            if self._pieces:
                self._pieces[0] = self._pieces[0]._replace(end_offset=max(end_offset, self.mirrored_end))
            return None
        return real(self, end_offset, error)

    patch.setattr(Follow, "appended", appended)


@FAULTS.add
def compares_no_content(patch: pytest.MonkeyPatch) -> None:
    """Takes the source's log for the one that was mirrored wherever it has the offset."""
    patch.setattr(follow, "compared", lambda *_, **__: Sameness.SAME)


@FAULTS.add
def goes_on_behind_deleted_offsets(patch: pytest.MonkeyPatch) -> None:
    """Goes on at the source's log start though nobody has accepted that."""
    real = Follow._judged  # noqa: SLF001

    def judged(self: Any, look: Look) -> Any:
        is_behind = 0 < look.target_end < look.source_start
        return look.source_start if is_behind else real(self, look)

    patch.setattr(Follow, "_judged", judged)


@FAULTS.add
def takes_another_topic_for_the_same(patch: pytest.MonkeyPatch) -> None:
    """Looks at the records of a topic that was created again, as if it were the one that was mirrored."""
    real = Follow._judged  # noqa: SLF001
    patch.setattr(Follow, "_judged", lambda self, look: real(self, look._replace(is_recreated=False)))


@FAULTS.add
def takes_damage_on_the_way_for_the_sources(patch: pytest.MonkeyPatch) -> None:
    """Stops where the target finds damage, though what was fetched is sound."""
    patch.setattr(follow, "_damage", lambda _: CorruptRecordError("the target says so"))
