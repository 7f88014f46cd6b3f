r"""Maps the subject of a certificate to the name of a client: `ssl.principal.mapping.rules` (KIP-371).

    RULE:PATTERN/REPLACEMENT/[LU], …, DEFAULT

The first rule whose pattern fits the whole subject counts. `$1` in its replacement stands for the first group, and L or
U makes the name small or large letters. DEFAULT takes the subject as it is. Slashes in a pattern are written `\/`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from millrace.errors import InvalidConfigError, TlsError

PROPERTY = "ssl.principal.mapping.rules"
RULE = re.compile(r"DEFAULT|RULE:(?P<pattern>(\\.|[^\\/])*)/(?P<replacement>(\\.|[^\\/])*)/(?P<case>[LU]?)")
BETWEEN = re.compile(r"\s*(,\s*|$)")
REFERENCE = re.compile(r"\\(.)|\$(\d)|(.)", re.DOTALL)
GROUP_NAME = re.compile(r"\(\?<(?![=!])")


class Rule(NamedTuple):
    """One rule; `replacement` is in Java's form. None as the pattern takes every subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> Sequence[Rule]:
    """Returns the rules of the property. Raises InvalidConfigError."""
    rules, position = [], 0
    text = text.strip()
    while position < len(text):
        match = RULE.match(text, position)
        end = None if match is None else BETWEEN.match(text, match.end())
        if match is None or end is None:
            raise InvalidConfigError(f"{PROPERTY}={text}: Invalid value, no rule begins with {text[position:]!r}")
        rules.append(_rule(match))
        position = end.end()
    return rules


def mapped(subject: str, rules: Sequence[Rule]) -> str:
    """Returns the name of the client whose certificate has this subject. Raises TlsError where no rule fits it."""
    for pattern, replacement, case in rules:
        if pattern is None:
            return subject
        if pattern.fullmatch(subject) is not None:
            name = pattern.sub(partial(_replaced, replacement), subject)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
    raise TlsError(f"no rule of {PROPERTY} fits the subject of its certificate, {subject}")


def _rule(match: re.Match[str]) -> Rule:
    if match["pattern"] is None:
        return Rule(None)
    try:
        pattern = re.compile(GROUP_NAME.sub("(?P<", match["pattern"]))
    except re.error as error:
        raise InvalidConfigError(
            f"{PROPERTY}: Invalid value, {match['pattern']} is no regular expression: {error}"
        ) from None
    return Rule(pattern, match["replacement"], match["case"])


def _replaced(replacement: str, found: re.Match[str]) -> str:
    """Returns the replacement with its groups; a reference to a group that does not exist stays as it is."""

    def part(match: re.Match[str]) -> str:
        escaped, group, plain = match.groups()
        if group is None:
            return escaped or plain
        return (found[int(group)] or "") if int(group) <= (found.re.groups) else f"${group}"

    return REFERENCE.sub(part, replacement)
