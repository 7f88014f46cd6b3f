r"""Parses the value of `sasl.jaas.config`, which has one login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a \"quoted\" secret";

It is read as Java's StreamTokenizer reads it for Kafka. A word begins with a letter, "_" or "$". Every other value
stands in single or double quotes, in which "\" begins an escape of C. Comments are `// …`, `/ …` and `/* … */`. Java
also takes a quoted value that the end of its line cuts off, which is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.errors import InvalidConfigError

LETTERS = r"A-Za-z_$\u00a0-\U0010ffff"
TOKEN = rf"""
      (?P<space>[\x00-\x20]+|/\*.*?\*/|/(?!\*)[^\r\n]*)
    | (?P<word>[{LETTERS}][{LETTERS}0-9.\-]*)
    | "(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"
    | '(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
    | (?P<sign>[=;])
    """
ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
MAX_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module of a JAAS configuration: its Java class, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    is_sign: bool
    text: str


def parse_jaas(text: str, property_name: str) -> LoginModule:
    """Returns the login module in a text like `MODULE required NAME="VALUE" …;`.

    Raises InvalidConfigError, which names the property but quotes no part of its value.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidConfigError(f"{property_name}: it is longer than {MAX_CHARACTERS} characters")
    tokens = list(_tokens(text, property_name))
    match tokens:
        case []:
            raise InvalidConfigError(f"{property_name}: it has no login module")
        case [_Token(False, name), _Token(False, flag), *rest] if flag.lower() in FLAGS:
            options, after = _options(rest, property_name)
        case _:
            raise InvalidConfigError(f"{property_name}: expected a login module and a flag such as required")
    if after:
        raise InvalidConfigError(f"{property_name}: expected one login module, and something follows it")
    return LoginModule(name, options)


def _options(tokens: list[_Token], property_name: str) -> tuple[dict[str, str], list[_Token]]:
    options: dict[str, str] = {}
    while tokens and tokens[0] != _Token(True, ";"):
        match tokens:
            case [_Token(False, name), _Token(True, "="), _Token(False, value), *rest]:
                options[name] = value
                tokens = rest
            case _:
                raise InvalidConfigError(f'{property_name}: expected options of the form name="value"')
    if not tokens:
        raise InvalidConfigError(f"{property_name}: a semicolon is missing after the last option")
    return options, tokens[1:]


def _tokens(text: str, property_name: str) -> Iterator[_Token]:
    token = re.compile(TOKEN, re.VERBOSE | re.DOTALL)  # not at import, where it costs every process 5 ms
    position = 0
    while position < len(text):
        match = token.match(text, position)
        if match is None:
            raise InvalidConfigError(f"{property_name}: the character at position {position} begins no word or quote")
        position = match.end()
        kind = match.lastgroup
        if kind is not None and kind != "space":
            is_quoted = kind in ("double", "single")
            yield _Token(kind == "sign", ESCAPE.sub(_unescaped, match[kind]) if is_quoted else match[kind])


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else ESCAPED.get(escape, escape)
