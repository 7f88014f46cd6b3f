"""Reads key stores and trust stores, as Kafka's properties `ssl.keystore.*` and `ssl.truststore.*` name them.

    type PEM      a file, or the property itself (KIP-651): certificates, and a private key in PKCS8 in a key store
    type PKCS12   a file with a password
    type JKS      Kafka's default. As in Java, a file that is PKCS12 inside is read under this name, too; a file in
                  Java's older format is refused.

In a property a PEM may stand on one line, with blanks in place of the ends of lines. No error repeats a secret.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key, pkcs12

from millrace.errors import InvalidConfigError

KEY_STORE, TRUST_STORE = "ssl.keystore", "ssl.truststore"
KEY_PASSWORD = "ssl.key.password"  # noqa: S105 -- the name of a property
BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
CERTIFICATE, ENCRYPTED_KEY, KEY = "CERTIFICATE", "ENCRYPTED PRIVATE KEY", "PRIVATE KEY"
OLD_JKS = b"\xfe\xed\xfe\xed"
COLUMNS = 64


class KeyAndChain(NamedTuple):
    """A private key, and its certificate with those that lead to an authority."""

    key: PrivateKeyTypes
    chain: Sequence[x509.Certificate]


def files_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the files that the properties name."""
    names = (f"{KEY_STORE}.location", f"{TRUST_STORE}.location")
    return tuple(value for name in names if (value := properties.get(name, "").strip()))


def read_key_store(properties: Mapping[str, str]) -> KeyAndChain | None:
    """Returns the key and its certificates; None where no property names them. Raises InvalidConfigError."""
    password = properties.get(KEY_PASSWORD) or None
    key, chain = f"{KEY_STORE}.key", f"{KEY_STORE}.certificate.chain"
    if properties.get(key) or properties.get(chain):
        _check_is_pem(KEY_STORE, properties, key)
        return _key_and_chain(key, properties.get(key, "") + properties.get(chain, ""), password)
    location = properties.get(f"{KEY_STORE}.location", "").strip()
    if not location:
        return None
    place, data = _read(f"{KEY_STORE}.location", location)
    if _is_pem(KEY_STORE, properties):
        return _key_and_chain(place, _text(place, data), password)
    store = _pkcs12(KEY_STORE, place, data, properties)
    if store.key is None or store.cert is None:
        raise InvalidConfigError(f"{place}: Invalid value, it has no private key with a certificate")
    others = [one.certificate for one in store.additional_certs]
    return KeyAndChain(store.key, _in_order(store.cert.certificate, others))


def read_trust_store(properties: Mapping[str, str]) -> Sequence[x509.Certificate] | None:
    """Returns the trusted certificates; None where no property names them. Raises InvalidConfigError."""
    name = f"{TRUST_STORE}.certificates"
    if properties.get(name):
        _check_is_pem(TRUST_STORE, properties, name)
        return _certificates(name, properties[name])
    location = properties.get(f"{TRUST_STORE}.location", "").strip()
    if not location:
        return None
    place, data = _read(f"{TRUST_STORE}.location", location)
    if _is_pem(TRUST_STORE, properties):
        return _certificates(place, _text(place, data))
    store = _pkcs12(TRUST_STORE, place, data, properties)
    found = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    if not found:
        raise InvalidConfigError(f"{place}: Invalid value, it has no certificate")
    return found


def pem_of(certificates: Sequence[x509.Certificate]) -> bytes:
    """Returns certificates as one PEM."""
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def _is_pem(store: str, properties: Mapping[str, str]) -> bool:
    name = f"{store}.type"
    kind = properties.get(name, "JKS").strip().upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise InvalidConfigError(f"{name}={kind}: Invalid value, expected PEM or PKCS12")
    if kind == "PEM" and properties.get(f"{store}.password"):
        raise InvalidConfigError(
            f"{store}.password: Invalid value, a PEM has no password; its key may have one, {KEY_PASSWORD}"
        )
    return kind == "PEM"


def _check_is_pem(store: str, properties: Mapping[str, str], given: str) -> None:
    if properties.get(f"{store}.location", "").strip():
        raise InvalidConfigError(f"{given}: Invalid value, {store}.location is given, too; leave one of them out")
    if not _is_pem(store, properties):
        raise InvalidConfigError(f"{given}: Invalid value, {store}.type must be PEM")


def _read(name: str, location: str) -> tuple[str, bytes]:
    """Returns the name of the file for errors, and its content."""
    place = f"{name}={location}"
    try:
        return place, Path(location).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfigError(f"{place}: Invalid value, the file can't be read: {reason}") from None


def _text(place: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidConfigError(f"{place}: Invalid value, it is no PEM") from None


def _pkcs12(store: str, place: str, data: bytes, properties: Mapping[str, str]) -> pkcs12.PKCS12KeyAndCertificates:
    if data.startswith(OLD_JKS):
        raise InvalidConfigError(
            f"{place}: Invalid value, a store in Java's old format JKS is not read; make one in PKCS12: "
            "keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"
        )
    password = properties.get(f"{store}.password")
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise InvalidConfigError(
            f"{place}: Invalid value, it is no PKCS12, or {store}.password is not its password"
        ) from None


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """Returns (label, PEM) of each block, with the body on lines of the usual length."""
    found = []
    for match in BLOCK.finditer(text):
        label, body = match["label"], match["body"]
        lines = body.strip() if ":" in body else textwrap.fill("".join(body.split()), COLUMNS)
        found.append((label, f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()))
    return found


def _certificates(place: str, text: str) -> list[x509.Certificate]:
    pems = [pem for label, pem in _blocks(text) if label == CERTIFICATE]
    if not pems:
        raise InvalidConfigError(f"{place}: Invalid value, it has no certificate in PEM")
    try:
        return x509.load_pem_x509_certificates(b"".join(pems))
    except ValueError:
        raise InvalidConfigError(f"{place}: Invalid value, a certificate in it can't be read") from None


def _key_and_chain(place: str, text: str, password: str | None) -> KeyAndChain:
    keys = [(label, pem) for label, pem in _blocks(text) if label.endswith(KEY)]
    if len(keys) != 1:
        raise InvalidConfigError(f"{place}: Invalid value, expected one private key in PEM, found {len(keys)}")
    [(label, pem)] = keys
    is_encrypted = label == ENCRYPTED_KEY or b"ENCRYPTED" in pem.partition(b"\n")[2][:COLUMNS]
    if is_encrypted and password is None:
        raise InvalidConfigError(f"{place}: Invalid value, the private key is encrypted; give {KEY_PASSWORD}")
    try:
        key = load_pem_private_key(pem, password.encode() if is_encrypted and password is not None else None)
    except (ValueError, TypeError):
        reason = f", or {KEY_PASSWORD} is not its password" if is_encrypted else ""
        raise InvalidConfigError(f"{place}: Invalid value, the private key can't be read{reason}") from None
    return KeyAndChain(key, _certificates(place, text))


def _in_order(own: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Returns a certificate and those that lead from it to an authority."""
    chain = [own]
    while (issuer := next((one for one in others if one.subject == chain[-1].issuer), None)) and issuer not in chain:
        chain.append(issuer)
    return chain
