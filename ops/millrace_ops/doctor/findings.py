"""What a check finds: how bad it is, the thing, what was found, what is wanted, and what changes it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """The level of a finding: all is well; a change is advised; or something fails or loses records sooner or later."""

    OK = "ok"
    ADVICE = "advice"
    PROBLEM = "problem"


class DoctorFinding(NamedTuple):
    """One finding of the doctor; `change` says what to type or to set, "" where all is well."""

    level: Level
    thing: str
    found: str
    wanted: str
    change: str


def judged(
    thing: str, found: str, wanted: str, change: str, *, is_well: bool, otherwise: Level = Level.ADVICE
) -> DoctorFinding:
    """Returns a finding that is OK where `is_well`, and else has the level `otherwise`."""
    return (
        DoctorFinding(Level.OK, thing, found, wanted, "")
        if is_well
        else DoctorFinding(otherwise, thing, found, wanted, change)
    )
