"""What Spark's executors lack, where a task failed for what they are and not for what it did: one sentence, a way on.

Spark's report of such a failure is the traceback of an unpickler or the stack of a JVM, and another attempt finds the
same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WAY_ON = "`millrace warehouse pack` makes an archive that brings it (docs/spark-clusters.md)"
ANOTHER_VERSION = (
    "Spark's executors have another version of Millrace than the driver, and can't read what it sends ({what}): "
    f"install the driver's there, or pack it again; {WAY_ON}"
)
NO_MILLRACE = (
    "the Python of Spark's executors has no {what}, and needs the driver's version of millrace-log[tables,spark]; "
    f"{WAY_ON}"
)
NO_PACKAGE = f"the Python of Spark's executors lacks the package {{what}}, which the driver has; {WAY_ON}"
OTHER_PYTHON = (
    "the Python of Spark's executors is {theirs}, and the driver's is {what}; their minor versions must be the same: "
    f"{WAY_ON}"
)
NO_PYTHON = (
    "Spark's executors have no program {what}, which spark.pyspark.python (or PYSPARK_PYTHON) names as their Python; "
    f"{WAY_ON}"
)
CLOSED_PYTHON = (
    "the user of Spark's executors may not run {what}, which spark.pyspark.python (or PYSPARK_PYTHON) names as their "
    "Python"
)
NO_CLIENT_CONFIG = (
    "Spark's executors can't read what secures the connection ({what}): put it there under the same path, or let the "
    "driver send it: --client-config send:FILE (docs/spark-clusters.md)"
)
CONFIG_ERROR = r"(?:[a-z_]+\.)*(?:InvalidConfigError|PropertyError)"
# What a line of the report begins with, or has, in this order, and what is said of it.
LACKS: Sequence[tuple[str, str]] = [
    (r"^ModuleNotFoundError: No module named '(?P<what>millrace[a-z_]*)'", NO_MILLRACE),
    (r"^ModuleNotFoundError: No module named '(?P<what>millrace[\w.]+)'", ANOTHER_VERSION),
    (r"^ModuleNotFoundError: No module named '(?P<what>[\w.]+)'", NO_PACKAGE),
    (r"^AttributeError: (?P<what>Can't get attribute '\w+' on <module 'millrace[\w.]*')", ANOTHER_VERSION),
    (r"^ImportError: (?P<what>cannot import name '\w+' from 'millrace[\w.]*')", ANOTHER_VERSION),
    (r"PYTHON_VERSION_MISMATCH\].*version: (?P<theirs>[\d.]+) than that in driver: (?P<what>[\d.]+)", OTHER_PYTHON),
    (r'Cannot run program "(?P<what>[^"]+)": error=2\b', NO_PYTHON),
    (r'Cannot run program "(?P<what>[^"]+)": error=13\b', CLOSED_PYTHON),
    (rf"^{CONFIG_ERROR}: (?P<what>.*: (?:No such file or directory|Permission denied))$", NO_CLIENT_CONFIG),
]


def what_executors_lack(report: str) -> str | None:
    """Returns the sentence about what executors lack by Spark's report of a failed task; None for another cause."""
    for pattern, said in LACKS:
        if found := re.search(pattern, report, re.MULTILINE):
            return said.format(**found.groupdict())
    return None
