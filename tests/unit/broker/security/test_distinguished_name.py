"""Subjects as Java writes them; the texts come from `X500Principal.getName()`, of certificates made in the same way."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID as N

from millrace_broker.security.certificate_names import subject_of

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(parts):
    rdns = [x509.RelativeDistinguishedName([x509.NameAttribute(*one) for one in part]) for part in parts]
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(x509.Name(rdns)).issuer_name(x509.Name(rdns)).serial_number(1)
    builder = builder.public_key(KEY.public_key()).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "java"),
    [
        ([[(N.COUNTRY_NAME, "DE")], [(N.ORGANIZATION_NAME, "Ex, ample")], [(N.COMMON_NAME, "alice")]],
         r"CN=alice,O=Ex\, ample,C=DE"),
        ([[(N.EMAIL_ADDRESS, "a@b.c")], [(N.COMMON_NAME, 'a+b=c<d>e#f;g"h\\i')]],
         r"CN=a\+b\=c\<d\>e\#f\;g\"h\\i,1.2.840.113549.1.9.1=#16056140622e63"),
        ([[(N.COMMON_NAME, " lead and trail ")], [(N.SERIAL_NUMBER, "12")], [(N.STREET_ADDRESS, "st")]],
         r"STREET=st,2.5.4.5=#13023132,CN=\ lead and trail\ "),
        ([[(N.DOMAIN_COMPONENT, "dc")], [(N.USER_ID, "uid")], [(N.STATE_OR_PROVINCE_NAME, "S")], [(N.TITLE, "T")]],
         "2.5.4.12=#0c0154,ST=S,UID=uid,DC=dc"),
        ([[(N.COMMON_NAME, "Zo\u00eb \u4e2d")], [(N.ORGANIZATION_NAME, "#hash  two")]],
         "O=\\#hash  two,CN=Zo\u00eb \u4e2d"),
        ([[(N.COMMON_NAME, "b"), (N.ORGANIZATIONAL_UNIT_NAME, "a")], [(N.COMMON_NAME, "z")]], "CN=z,CN=b+OU=a"),
        ([[(N.SURNAME, "x" * 200)]], "2.5.4.4=#0c81c8" + "78" * 200),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(parts, java):
    assert subject_of(certificate(parts)) == java
