"""Looks for what Millrace runs on: Python, the record kernel, the packages of the extra `broker`, and Java."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from millrace import __version__, kernel
from millrace.errors import SetupError
from millrace.extras import require
from millrace.java import find_java, java_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareFacts:
    """What is installed. `kernel_trouble` and `broker_trouble` are None where kernel and extra are there."""

    version: str
    python: str
    kernel: str
    kernel_trouble: str | None
    broker_trouble: str | None
    java: str | None
    java_trouble: str | None


def read_software() -> SoftwareFacts:
    """Returns what this interpreter has, and the Java that would be run."""
    java, java_trouble = _java()
    return SoftwareFacts(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernel=kernel.description,
        kernel_trouble=kernel.reason_against(),
        broker_trouble=_broker_trouble(),
        java=java,
        java_trouble=java_trouble,
    )


def _broker_trouble() -> str | None:
    try:
        require("the broker", "broker")
    except SetupError as error:
        return str(error)
    return None


def _java() -> tuple[str | None, str | None]:
    try:
        java = find_java()
    except SetupError as error:
        return None, str(error)
    return f"version {java_version(java)}, {java}", None
