"""Cipher suites by IANA's names, which Java uses, and by OpenSSL's.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256     ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA256           AES256-SHA256
    TLS_AES_256_GCM_SHA384                    the same in both, as all suites of TLS 1.3

Python's `ssl` can leave TLS 1.3 out, but can't choose among its suites. So a list with some of them and not all is
refused, and a list without them means that TLS 1.3 is not spoken, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from millrace.errors import InvalidConfigError

PROPERTY = "ssl.cipher.suites"
OF_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
USUAL = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 that are offered unless others are named: with forward secrecy, authenticated, not CBC."""


def split_suites(text: str) -> tuple[Sequence[str], bool]:
    """Returns OpenSSL's names of a list's suites of TLS 1.2, and whether the list has the suites of TLS 1.3.

    Raises InvalidConfigError for a list with some, but not all, of the suites of TLS 1.3.
    """
    names = [one.strip() for one in text.split(",") if one.strip()]
    newest = OF_TLS_1_3.intersection(names)
    if newest and newest != OF_TLS_1_3:
        raise InvalidConfigError(
            f"{PROPERTY}={text}: Invalid value, one can't choose among the suites of TLS 1.3; name all of them "
            f"({', '.join(sorted(OF_TLS_1_3))}), or none and so leave TLS 1.3 out"
        )
    return [openssl_name(one) for one in names if one not in OF_TLS_1_3], bool(newest)


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a suite of TLS 1.2; returns a name that is OpenSSL's already as it is."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return name
    cipher = re.sub(r"^AES_(\d+)_", r"AES\1_", cipher).replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join([*(() if exchange == "RSA" else exchange.split("_")), *cipher.split("_")])
