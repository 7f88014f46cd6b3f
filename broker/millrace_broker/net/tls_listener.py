"""The TLS context of a listener, renewed while the broker runs.

New handshakes use the newest context; open connections keep theirs. The context is made again when the listener's
properties change, or one of the files that they name: its time, size or inode. What can't be used, such as a file that
is written just now, changes nothing: the former context stays, and the next change is looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from millrace.security.protocols import SecurityProtocol
from millrace.security.tls import files_of, server_context
from millrace_broker.properties.listeners import Listener, own_properties
from millrace_broker.security.certificate_names import PROPERTY as MAPPING_RULES
from millrace_broker.security.certificate_names import mapped, parse_rules, subject_of
from millrace_broker.security.client_session import ANONYMOUS, USER, Principal


class FileStamp(NamedTuple):
    """A file's inode, size and time of change, which differ when a certificate file was replaced."""

    inode: int
    size_bytes: int
    changed_ns: int


class TlsListener:
    """A listener with TLS: its TLS context, and the mapping of certificates to principals.

    Making one raises InvalidConfigError where its properties or certificates can't be used.
    """

    def __init__(self, listener: Listener) -> None:
        self.name = listener.name
        self._protocol = listener.protocol
        self._seen = _seen(listener.properties)
        self.context = server_context(listener.properties)
        self._rules = parse_rules(listener.properties.get(MAPPING_RULES, "DEFAULT"))

    def renew(self, properties: Mapping[str, str]) -> bool:
        """Makes a new TLS context if the listener's properties or their files have changed; returns whether they have.

        Raises InvalidConfigError where they can't be used: the former context stays, and these files are not tried
        again.
        """
        own = own_properties(self.name, self._protocol, properties)
        seen = _seen(own)
        if seen == self._seen:
            return False
        self._seen = seen
        self.context = server_context(own)
        return True

    def check(self, properties: Mapping[str, str]) -> None:
        """Raises InvalidConfigError where the listener can't use the certificates or settings in these properties."""
        server_context(own_properties(self.name, self._protocol, properties))

    def principal(self, certificate: bytes | None) -> Principal:
        """Returns the principal of a DER certificate by the mapping rules. Raises TlsError if no rule fits its subject.

        Without a certificate, and where clients authenticate by SASL, that is the anonymous principal.
        """
        if certificate is None or self._protocol is SecurityProtocol.SASL_SSL:
            return ANONYMOUS
        return Principal(USER, mapped(subject_of(certificate), self._rules))


def _seen(properties: Mapping[str, str]) -> tuple[dict[str, str], list[FileStamp | None]]:
    return dict(properties), [_stamp(one) for one in files_of(properties)]


def _stamp(path: str) -> FileStamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return FileStamp(found.st_ino, found.st_size, found.st_mtime_ns)
