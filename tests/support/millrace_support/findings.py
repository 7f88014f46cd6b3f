"""What an audit finds, without what differs from one run to the next: paths of files, and the command that mends."""

import re
from collections.abc import Iterable

PLACES = re.compile(r", in /[^;]*|; (`millrace .*|load the topic into another table)$")


def told(findings: Iterable[str]) -> list[str]:
    """Returns the lines without the files that have the offsets, and without the way on."""
    return [PLACES.sub("", finding) for finding in findings]
