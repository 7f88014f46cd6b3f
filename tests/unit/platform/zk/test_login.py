"""JAAS files: who a client of ZooKeeper is."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.zk.security import DIGEST_MODULE, Login, parse_login, read_login

ENTRY = f'{DIGEST_MODULE} required username="kafka" password="hush";'


@pytest.mark.parametrize(
    "text",
    [
        f"Client {{ {ENTRY} }};",
        f"Client{{{ENTRY}}};",
        f'// Client {{ x }}\nKafkaServer {{ a.Module required user_Client="{{"; }};\nClient {{\n{ENTRY}\n}};',
        f"/* Client {{ }} */ Client {{ {ENTRY.replace('required', 'optional')} }};",
        f"Client {{ {DIGEST_MODULE} required password=hush username=kafka; }};",
    ],
)  # fmt: skip
def test_the_login_is_that_of_the_section_client(text):
    assert parse_login(text) == Login("kafka", "hush")


def test_a_quote_may_be_part_of_a_password():
    text = ENTRY.replace("hush", r"a\"b\\c")
    assert parse_login(f"Client {{ {text} }};").password == r'a"b\c'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no section Client"),
        (f"Server {{ {ENTRY} }};", "there is no section Client"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };", "Krb5LoginModule"),
        (f'Client {{ {DIGEST_MODULE} required username="kafka"; }};', "no password"),
        (f"Client {{ {DIGEST_MODULE}; }};", "is not MODULE required"),
        (f'Client {{ {DIGEST_MODULE} required username="hush"', "has no end"),
        ('Client { "hush', "line 1 is no part"),
    ],
)
def test_what_is_no_login_is_said_without_its_secret(text, said):
    with pytest.raises(ValueError, match=said) as raised:
        parse_login(text)
    assert "hush" not in str(raised.value)


def test_the_file_is_named_and_a_login_does_not_show_its_password(tmp_path):
    with pytest.raises(InvalidConfigError, match=r"java.security.auth.login.config=/no/file: No such file"):
        read_login("/no/file")
    (tmp_path / "jaas").write_text("x")
    with pytest.raises(InvalidConfigError, match="jaas: there is no section Client"):
        read_login(str(tmp_path / "jaas"))
    assert "hush" not in repr(Login("kafka", "hush"))
