"""Rules of ssl.principal.mapping.rules, with the examples of Kafka's documentation and of KIP-371."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import InvalidConfigError, TlsError
from millrace_broker.security.certificate_names import mapped, parse_rules

SERVICE = "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
ADMIN = "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
KAFKAS = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (KAFKAS, SERVICE, "serviceuser"),
        (KAFKAS, ADMIN, "adminuser@admin"),
        (KAFKAS, "O=x,cn=Small", "small"),
        (KAFKAS, "O=x", "O=x"),
        ("DEFAULT", ADMIN, ADMIN),
        ("RULE:^CN=(.*?),.*$/$1/U", ADMIN, "ADMINUSER"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$4/,DEFAULT", ADMIN, "adminUser@$4"),
        (r"RULE:^CN=a\/b$/slash\/ed/", "CN=a/b", "slash/ed"),
        (r"RULE:^CN=(?<name>.*?),.*$/\$1 is $1/", ADMIN, "$1 is adminUser"),
    ],
)
def test_the_first_rule_that_fits_names_the_client(rules, subject, name):
    assert mapped(subject, parse_rules(rules)) == name


def test_whom_no_rule_fits_is_refused():
    with pytest.raises(TlsError, match=r"no rule of ssl\.principal\.mapping\.rules fits the subject .*, CN=x"):
        mapped("CN=x", parse_rules("RULE:^CN=y$/y/"))


@pytest.mark.parametrize(
    "rules",
    ["RULE", "RULE:a", "RULE:a/b", "RULE:a/b/X", "DEFAULT;DEFAULT", "RULE:(/x/", "default", "RULE:a/b/L DEFAULT"],
)
def test_what_is_no_list_of_rules_stops_the_start(rules):
    with pytest.raises(InvalidConfigError, match=r"^ssl\.principal\.mapping\.rules"):
        parse_rules(rules)


@given(st.text(alphabet="RULE:DEFAULT/LU,()$1\\ ab", max_size=40))
def test_any_text_is_a_list_of_rules_or_refused(text):
    with suppress(InvalidConfigError, TlsError):
        mapped("CN=ab", parse_rules(text))
