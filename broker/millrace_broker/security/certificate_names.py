r"""The name of a client by its certificate: the subject as text, and what `ssl.principal.mapping.rules` makes of it.

The text is the one that Java's `X500Principal.getName()` writes, in RFC 2253's order.

    CN=alice,OU=Data\, Berlin,O=Example       the last part of the certificate's sequence comes first
    1.2.840.113549.1.9.1=#1605612e622e63      an attribute without a short name has its number, and its value in DER

The rules (KIP-371) are `RULE:PATTERN/REPLACEMENT/[LU], …, DEFAULT`. The first rule whose pattern fits the whole subject
counts. `$1` in its replacement stands for the first group, and L or U makes the name small or large letters. DEFAULT
takes the subject as it is. Slashes in a pattern are written `\/`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from millrace.errors import InvalidConfigError, TlsError

SHORT_NAMES = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
ESCAPED = ',=+<>#;"\\'
LONG_LENGTH = 0x80
PROPERTY = "ssl.principal.mapping.rules"
RULE = re.compile(r"DEFAULT|RULE:(?P<pattern>(\\.|[^\\/])*)/(?P<replacement>(\\.|[^\\/])*)/(?P<case>[LU]?)")
BETWEEN = re.compile(r"\s*(,\s*|$)")
REFERENCE = re.compile(r"\\(.)|\$(\d)|(.)", re.DOTALL)
GROUP_NAME = re.compile(r"\(\?<(?![=!])")


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate (DER) as text, like `CN=alice,OU=Data,O=Example`."""
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute(one) for one in part) for part in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    short = SHORT_NAMES.get(attribute.oid)
    if short is None or isinstance(attribute.value, bytes):
        return f"{short or attribute.oid.dotted_string}=#{_value_der(attribute).hex()}"
    return f"{short}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{one}" if one in ESCAPED else one for one in value).replace("\0", "\\00")
    inner = text.strip(" ")
    if not inner:
        return "\\ " * len(text)
    leading, trailing = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "\\ " * leading + inner + "\\ " * trailing


def _value_der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Returns an attribute's value in DER, cut out of an encoded name that has only this attribute."""
    der = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        der = _content(der)
    return _after_first(der)


def _content(der: bytes) -> bytes:
    return der[2 + (der[1] & ~LONG_LENGTH if der[1] & LONG_LENGTH else 0) :]


def _after_first(der: bytes) -> bytes:
    """Returns the bytes behind the first DER element, an object identifier with a length of one byte."""
    return der[2 + der[1] :]


class Rule(NamedTuple):
    """A rule of `ssl.principal.mapping.rules`; `replacement` has groups as `$1`, `pattern` None keeps every subject."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> Sequence[Rule]:
    """Returns the rules in `ssl.principal.mapping.rules`, like `RULE:^CN=(.*)$/$1/L`. Raises InvalidConfigError."""
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
    """Returns the client's name by the first rule that fits its certificate's subject. Raises TlsError if none does."""
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
    """Returns the replacement text with the match's groups put in for `$1` and so on; unknown ones stay as they are."""

    def part(match: re.Match[str]) -> str:
        escaped, group, plain = match.groups()
        if group is None:
            return escaped or plain
        return (found[int(group)] or "") if int(group) <= (found.re.groups) else f"${group}"

    return REFERENCE.sub(part, replacement)
