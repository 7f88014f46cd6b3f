"""Contexts of TLS for both sides, from Kafka's properties `ssl.*`, and what the errors of TLS mean.

    a broker   shows the certificate of its key store, and asks for that of a client as `ssl.client.auth` says
    a client   trusts the authorities of its trust store, else those of the system, and compares the broker's name with
               its certificate unless `ssl.endpoint.identification.algorithm` is empty; it may have a key store

TLS 1.2 and 1.3 are spoken, nothing older. Renegotiation and compression are refused. A key is handed to OpenSSL in a
file that only this user reads, encrypted with a password that nobody else knows, and the file is gone at once.

Cipher suites go by IANA's names, which Java uses, or by OpenSSL's:

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256     ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA256           AES256-SHA256
    TLS_AES_256_GCM_SHA384                    the same in both, as all suites of TLS 1.3

Python's `ssl` can leave TLS 1.3 out, but can't choose among its suites. So a list with some of them and not all is
refused, and a list without them means that TLS 1.3 is not spoken, as in Java.

Key stores and trust stores are those that `ssl.keystore.*` and `ssl.truststore.*` name:

    type PEM      a file, or the property itself (KIP-651): certificates, and a private key in PKCS8 in a key store
    type PKCS12   a file with a password
    type JKS      Kafka's default. As in Java, a file that is PKCS12 inside is read under this name, too; a file in
                  Java's older format is refused.

In a property a PEM may stand on one line, with blanks in place of the ends of lines. No error repeats a secret.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from millrace.errors import InvalidConfigError, TlsError
from millrace.security.protocols import IDENTIFICATION

KEY_STORE, TRUST_STORE = "ssl.keystore", "ssl.truststore"
STORES = (f"{KEY_STORE}.", f"{TRUST_STORE}.")
KEY_PASSWORD = "ssl.key.password"  # noqa: S105 -- the name of a property
BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
CERTIFICATE, ENCRYPTED_KEY, KEY = "CERTIFICATE", "ENCRYPTED PRIVATE KEY", "PRIVATE KEY"
OLD_JKS = b"\xfe\xed\xfe\xed"
COLUMNS = 64


class KeyAndChain(NamedTuple):
    """A private key, its certificate, and the certificates of the chain to an authority."""

    key: PrivateKeyTypes
    chain: Sequence[x509.Certificate]


def files_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the paths of the key store and the trust store, as far as the properties name them."""
    names = (f"{KEY_STORE}.location", f"{TRUST_STORE}.location")
    return tuple(value for name in names if (value := properties.get(name, "").strip()))


def read_key_store(properties: Mapping[str, str]) -> KeyAndChain | None:
    """Returns the key and certificates in the key store that properties name, if any; raises InvalidConfigError."""
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
    """Returns the certificates in the trust store that properties name, if any; raises InvalidConfigError."""
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


def without_files(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns a client's properties with the contents of its stores in PEM, in place of their files and passwords.

    Raises InvalidConfigError for a store that can't be read. The private key is not encrypted in what is returned.
    """
    trusted, own = read_trust_store(properties), read_key_store(properties)
    others = {name: value for name, value in properties.items() if not name.startswith((*STORES, KEY_PASSWORD))}
    if trusted is not None:
        others |= {f"{TRUST_STORE}.type": "PEM", f"{TRUST_STORE}.certificates": pem_of(trusted).decode()}
    if own is not None:
        key = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        chain = pem_of(own.chain).decode()
        others |= {f"{KEY_STORE}.type": "PEM", f"{KEY_STORE}.key": key, f"{KEY_STORE}.certificate.chain": chain}
    return others


def pem_of(certificates: Sequence[x509.Certificate]) -> bytes:
    """Returns certificates as bytes in PEM format, one after the other."""
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
    """Returns `NAME=LOCATION`, for error messages, and the bytes of the file there; raises InvalidConfigError."""
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
    """Returns (label, bytes) of each PEM block in a text, rewrapped to lines of the usual length."""
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
    """Returns the chain of certificates from `own`, each followed by its issuer as far as `others` has that."""
    chain = [own]
    while (issuer := next((one for one in others if one.subject == chain[-1].issuer), None)) and issuer not in chain:
        chain.append(issuer)
    return chain


CLIENT_AUTH = "ssl.client.auth"
PROTOCOL, ENABLED_PROTOCOLS = "ssl.protocol", "ssl.enabled.protocols"
VERIFIED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NEWEST = {"TLS": "TLSv1.3", "TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3"}


def server_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Returns the TLS context of a listener; raises InvalidConfigError, which names property and file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_protocol(context, properties)
    material = read_key_store(properties)
    if material is None:
        raise InvalidConfigError(f"{KEY_STORE}.location: Invalid value, a listener with TLS needs a key store")
    _load_key(context, material)
    asked = properties.get(CLIENT_AUTH, "none").strip().lower()
    if asked not in VERIFIED:
        raise InvalidConfigError(f"{CLIENT_AUTH}={asked}: Invalid value, expected one of {', '.join(VERIFIED)}")
    context.verify_mode = VERIFIED[asked]
    if not _trust(context, properties) and asked != "none":
        raise InvalidConfigError(
            f"{CLIENT_AUTH}={asked}: Invalid value, give the authorities of clients as {TRUST_STORE}.location"
        )
    return context


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Returns the TLS context of a client; raises InvalidConfigError, which names property and file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocol(context, properties)
    algorithm = properties.get(IDENTIFICATION, "https").strip().lower()
    if algorithm not in ("", "https"):
        raise InvalidConfigError(f"{IDENTIFICATION}={algorithm}: Invalid value, expected https, or nothing")
    context.check_hostname = algorithm == "https"
    if not _trust(context, properties):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    material = read_key_store(properties)
    if material is not None:
        _load_key(context, material)
    return context


def _set_protocol(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    names = _enabled_versions(properties)
    suites = properties.get(CIPHER_SUITES, "").strip()
    older, has_newest = split_suites(suites) if suites else ([USUAL], True)
    spoken = [one for one in names if (has_newest if one == "TLSv1.3" else older)]
    if not spoken:
        raise InvalidConfigError(f"{CIPHER_SUITES}={suites}: Invalid value, none of them is of {' or '.join(names)}")
    context.minimum_version = min(VERSIONS[one] for one in spoken)
    context.maximum_version = max(VERSIONS[one] for one in spoken)
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise InvalidConfigError(
                f"{CIPHER_SUITES}={suites}: Invalid value, no suite of this name is known"
            ) from None


def _enabled_versions(properties: Mapping[str, str]) -> list[str]:
    newest = properties.get(PROTOCOL, "TLSv1.3").strip()
    if newest not in NEWEST:
        raise InvalidConfigError(f"{PROTOCOL}={newest}: Invalid value, expected TLSv1.2 or TLSv1.3")
    text = properties.get(ENABLED_PROTOCOLS, "").strip()
    if not text:
        return [one for one in VERSIONS if one <= NEWEST[newest]]
    names = [one.strip() for one in text.split(",") if one.strip()]
    if not names or not set(names) <= VERSIONS.keys():
        raise InvalidConfigError(f"{ENABLED_PROTOCOLS}={text}: Invalid value, TLSv1.2 and TLSv1.3 are spoken")
    return names


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> bool:
    """Makes the context trust the certificates of the trust store; returns whether the properties name one."""
    trusted = read_trust_store(properties)
    if trusted is None:
        return False
    context.load_verify_locations(cadata=pem_of(trusted).decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority need not be a root, as in Java
    return True


def _load_key(context: ssl.SSLContext, material: KeyAndChain) -> None:
    password = secrets.token_hex()
    key = material.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    with tempfile.NamedTemporaryFile() as file:
        file.write(key + pem_of(material.chain))
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except ssl.SSLError as error:
            raise InvalidConfigError(
                f"{KEY_STORE}: Invalid value, the private key does not go with its certificate: {error.reason}"
            ) from None


CIPHER_SUITES = "ssl.cipher.suites"
OF_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
USUAL = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 that are offered unless others are named: with forward secrecy, authenticated, not CBC."""


def split_suites(text: str) -> tuple[Sequence[str], bool]:
    """Returns OpenSSL's names of the TLS 1.2 suites in a list, and whether the list has the suites of TLS 1.3.

    Raises InvalidConfigError for a list with some, but not all, of the suites of TLS 1.3.
    """
    names = [one.strip() for one in text.split(",") if one.strip()]
    newest = OF_TLS_1_3.intersection(names)
    if newest and newest != OF_TLS_1_3:
        raise InvalidConfigError(
            f"{CIPHER_SUITES}={text}: Invalid value, one can't choose among the suites of TLS 1.3; name all of them "
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


EXPIRED, NOT_YET_VALID = 10, 9
NOT_TRUSTED = frozenset({2, 18, 19, 20, 21})
WRONG_HOST = frozenset({62, 64})
CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


def tls_error(error: OSError, peer: str) -> TlsError | None:
    """Returns the TlsError for a failed handshake or a TLS alert; None for an error of the connection itself."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(_of_certificate(error, peer))
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    reason = error.reason or ""
    if reason in NO_TLS:
        return TlsError(f"{peer} does not speak TLS there: is security.protocol right?")
    if "ALERT" in reason and any(word in reason for word in CERTIFICATE_ALERTS):
        return TlsError(
            f"{peer} does not take this client's certificate, or misses it ({_words(reason)}): "
            "ssl.keystore.location names the file with certificate and key"
        )
    return TlsError(f"TLS with {peer} fails: {_words(reason) or error}")


def _of_certificate(error: ssl.SSLCertVerificationError, peer: str) -> str:
    if error.verify_code in WRONG_HOST:
        return f"the certificate of {peer} is made for another host: {error.verify_message.rstrip('.')}"
    if error.verify_code == EXPIRED:
        return f"the certificate of {peer} has expired"
    if error.verify_code == NOT_YET_VALID:
        return f"the certificate of {peer} is not valid yet"
    if error.verify_code in NOT_TRUSTED:
        return f"the certificate of {peer} is signed by nobody whom ssl.truststore.location trusts"
    return f"the certificate of {peer} is not taken: {error.verify_message}"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
