r"""The subject of a certificate as text, as Java's `X500Principal.getName()` writes it, in RFC 2253's order.

CN=alice,OU=Data\, Berlin,O=Example       the last part of the certificate's sequence comes first
1.2.840.113549.1.9.1=#1605612e622e63      an attribute without a short name has its number, and its value in DER
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

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


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate (DER)."""
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
    """Returns the value as it is in a name of this attribute alone: a sequence of a set of a sequence (OID, value)."""
    der = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        der = _content(der)
    return _after_first(der)


def _content(der: bytes) -> bytes:
    return der[2 + (der[1] & ~LONG_LENGTH if der[1] & LONG_LENGTH else 0) :]


def _after_first(der: bytes) -> bytes:
    """Returns what stands behind the first element, an OID, which is short."""
    return der[2 + der[1] :]
