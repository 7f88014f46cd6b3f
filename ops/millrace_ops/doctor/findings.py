"""What a check finds: how bad it is, the thing, what was found, what is wanted, and what changes it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How bad a finding is: nothing to do, worth a change, or it fails or loses records sooner or later."""

    OK = "ok"
    ADVICE = "advice"
    PROBLEM = "problem"


class DoctorFinding(NamedTuple):
    """What was found of one thing; `change` says what to type or to set, and is empty where all is well."""

    level: Level
    thing: str
    found: str
    wanted: str
    change: str


def judged(
    thing: str, found: str, wanted: str, change: str, *, is_well: bool, otherwise: Level = Level.ADVICE
) -> DoctorFinding:
    """Returns the finding of a thing that either is well, or is as bad as `otherwise` says."""
    return (
        DoctorFinding(Level.OK, thing, found, wanted, "")
        if is_well
        else DoctorFinding(otherwise, thing, found, wanted, change)
    )
