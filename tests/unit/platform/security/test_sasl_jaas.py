"""The text of `sasl.jaas.config`."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.sasl.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text):
    return dict(parse_jaas(f"{MODULE} required {text};", "sasl.jaas.config").options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username='alice'\n  password = 'a \"b\"'", {"username": "alice", "password": 'a "b"'}),
        (r'password="a \"b\" \\ \t \101 \477 \q"', {"password": 'a "b" \\ \t A \x277 q'}),
        ('user_alice-1="a" user_b.c="d"', {"user_alice-1": "a", "user_b.c": "d"}),
        ('a=true /* b="c" */ d="e" // f="g"', {"a": "true", "d": "e"}),
        ('password="a;b=c//d"', {"password": "a;b=c//d"}),
        ('user_élan="é"', {"user_élan": "é"}),
        ('a="1" a="2"', {"a": "2"}),
        ('a=""', {"a": ""}),
    ],
)
def test_options_are_read_as_java_reads_them(text, expected):
    if "//" in text and not text.startswith("password"):
        text += "\n"  # the comment ends with its line
    assert options(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "// nothing",
        MODULE,
        f"{MODULE} perhaps;",
        f"{MODULE} required",
        f'{MODULE} required password="secret"',
        f"{MODULE} required password;",
        f"{MODULE} required password=123;",
        f'{MODULE} required "secret;',
        f'{MODULE} required password="secret\n";',
        f"{MODULE} required; {MODULE} required;",
        f'{MODULE} required = "secret";',
        f"{MODULE} required " + 'a="secret" ' * 100_000 + ";",
    ],
)
def test_another_form_is_refused_without_its_secrets(text):
    with pytest.raises(InvalidConfigError, match=r"sasl\.jaas\.config") as refused:
        parse_jaas(text, "sasl.jaas.config")
    assert "secret" not in str(refused.value)


def test_a_login_module_does_not_show_its_options():
    assert "secret" not in repr(parse_jaas(f'{MODULE} required password="secret";', "sasl.jaas.config"))
