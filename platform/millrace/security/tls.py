"""Contexts of TLS for both sides, from Kafka's properties `ssl.*`.

    a broker   shows the certificate of its key store, and asks for that of a client as `ssl.client.auth` says
    a client   trusts the authorities of its trust store, else those of the system, and compares the broker's name with
               its certificate unless `ssl.endpoint.identification.algorithm` is empty; it may have a key store

TLS 1.2 and 1.3 are spoken, nothing older. Renegotiation and compression are refused. A key is handed to OpenSSL in a
file that only this user reads, encrypted with a password that nobody else knows, and the file is gone at once.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Mapping

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from millrace.errors import InvalidConfigError
from millrace.security.cipher_suites import PROPERTY as CIPHER_SUITES
from millrace.security.cipher_suites import USUAL, split_suites
from millrace.security.property_names import IDENTIFICATION
from millrace.security.stores import KEY_STORE, TRUST_STORE, KeyAndChain, pem_of, read_key_store, read_trust_store

CLIENT_AUTH = "ssl.client.auth"
PROTOCOL, ENABLED_PROTOCOLS = "ssl.protocol", "ssl.enabled.protocols"
VERIFIED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NEWEST = {"TLS": "TLSv1.3", "TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3"}


def server_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Returns the context of a listener. Raises InvalidConfigError, which names property and file."""
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
    """Returns the context of a client. Raises InvalidConfigError, which names property and file."""
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
    """Has the context trust the authorities of the trust store; returns whether there is one."""
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
