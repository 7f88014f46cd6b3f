"""Kafka's own classes judge what is read of `sasl.jaas.config`, and the credentials that are made of passwords.

A quote that the end of the line cuts off is not among the texts: Kafka takes it, and here it is refused.
"""

import base64
from pathlib import Path
from random import Random

from millrace.errors import InvalidConfigError
from millrace.security.sasl.jaas import parse_jaas
from millrace.security.sasl.scram import SCRAM_HASHES, credential_of, credential_text, salted_password
from millrace_support.java_programs import with_program

JUDGE = Path(__file__).parent / "judges" / "Sasl.java"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PIECES = [
    *("a", "b_c", "user_x-1", "$d", "é", "1", "-2", ".5", "x1.y", "=", "=", "=", ";", '"a b"', "'c'", '"\\"d\\""'),
    *(
        "'\"'",
        '"\\\\"',
        '"\\t\\101\\7x\\477"',
        '"//e"',
        "// f\n",
        "/* g */",
        "/ h\n",
        " ",
        "\n",
        "required",
        "true",
    ),
    *('""', "@", "#", "j/k\n", "*/"),
]
TEXTS = 3000


def encoded(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def asked(kafka, lines):
    output = with_program(kafka, JUDGE).run(JUDGE.stem, stdin="".join(f"{line}\n" for line in lines).encode())
    return [line.removeprefix("> ").strip() for line in output.splitlines() if line.startswith("> ")]


def ours(text):
    try:
        options = parse_jaas(text, "sasl.jaas.config").options
    except InvalidConfigError:
        return "refused"
    return " ".join(["options", *(f"{encoded(name)}={encoded(options[name])}" for name in sorted(options))])


def jaas_texts(chance):
    for _ in range(TEXTS):
        pieces = [chance.choice(PIECES) for _ in range(chance.randint(0, 3))]
        for _ in range(chance.randint(0, 3)):
            pieces += [chance.choice(PIECES[:9]), "=", chance.choice(PIECES)]
        yield f"{MODULE} required {chance.choice(['', ' ']).join(pieces)} ;"


def test_login_modules_are_read_as_kafka_reads_them(kafka):
    texts = list(jaas_texts(Random(18)))
    theirs = asked(kafka, [f"jaas {encoded(text)}" for text in texts])
    differing = [(text, found, ours(text)) for text, found in zip(texts, theirs, strict=True) if found != ours(text)]
    assert differing == []
    assert 0.05 < theirs.count("refused") / TEXTS < 0.95


def test_credentials_are_made_as_kafka_makes_them(kafka):
    chance = Random(18)
    lines, expected = [], []
    for number in range(60):
        mechanism = chance.choice(list(SCRAM_HASHES))
        password = "".join(
            chr(chance.choice([chance.randrange(32, 127), chance.randrange(160, 900)])) for _ in range(9)
        )
        salt, iterations = chance.randbytes(1 + number), chance.randint(1, 5000)
        lines.append(f"scram {mechanism} {encoded(password)} {encoded(salt)} {iterations}")
        salted = salted_password(SCRAM_HASHES[mechanism], password, salt, iterations)
        expected.append(credential_text(credential_of(mechanism, salted, salt, iterations)))
    assert asked(kafka, lines) == expected
