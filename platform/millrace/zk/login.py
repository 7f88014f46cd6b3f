"""Reads who a client of ZooKeeper is from the JAAS file of Java's clients (`java.security.auth.login.config`).

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A file may have other sections, for Kafka's own listeners; they are passed over. Comments are those of Java. Kerberos
(`Krb5LoginModule`) is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from millrace.errors import InvalidConfigError

SECTION = "Client"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
MAX_FILE_BYTES = 1 << 20
TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<sign>[{};=])|(?P<word>[^\s{};="/]+)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Login:
    """A user whom ZooKeeper's servers know by a password (SASL DIGEST-MD5)."""

    username: str
    password: str = field(repr=False)


def read_login(file: str) -> Login:
    """Returns the login in the section Client of a JAAS file.

    Raises InvalidConfigError, which names the file, and no secret.
    """
    try:
        with Path(file).open(encoding="utf-8") as content:
            return parse_login(content.read(MAX_FILE_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfigError(f"java.security.auth.login.config={file}: {reason}") from None


def parse_login(text: str) -> Login:
    """Returns the login in the section Client of a JAAS file's text; raises ValueError without a secret in it."""
    module, options = _client_entry(list(_tokens(text)))
    if module != DIGEST_MODULE:
        raise ValueError(f"the section {SECTION} has the login module {module}, and only {DIGEST_MODULE} is served")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"the section {SECTION} has no {' and no '.join(missing)}")
    return Login(options["username"], options["password"])


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1} is no part of a JAAS file")
        position = found.end()
        if found["quoted"] is not None:
            yield re.sub(r"\\(.)", r"\1", found["quoted"])
        elif found["skipped"] is None:
            yield found[0]


def _client_entry(tokens: list[str]) -> tuple[str, dict[str, str]]:
    """Returns the login module of the section Client and its options."""
    starts = [index for index, pair in enumerate(pairwise(tokens)) if pair == (SECTION, "{")]
    if not starts:
        raise ValueError(f"there is no section {SECTION}")
    entry = tokens[starts[0] + 2 :]
    if ";" not in entry:
        raise ValueError(f"the section {SECTION} has no end")
    entry = entry[: entry.index(";")]
    if len(entry) < 2 or len(entry) % 3 != 2 or any(sign != "=" for sign in entry[3::3]):
        raise ValueError(f"the section {SECTION} is not MODULE required NAME=VALUE ...;")
    return entry[0], dict(zip(entry[2::3], entry[4::3], strict=True))
