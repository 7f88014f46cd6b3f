"""The clients that Python imports: confluent-kafka (librdkafka), kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from kafka.net.sasl.oauth import AbstractTokenProvider

from millrace_support.secured_clients.task import Login, RefusedError, Task

TIMEOUT_S = 60
REFUSED_WITHIN_MS = 2_000
REFUSED_WORDS = ("Authentication failed", "certificate verify failed", "socket disconnected")  # of kafka-python
REFUSALS = (confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL)  # noqa: SLF001  # no public names
FOREVER_S = 1e10
SESSION_MS = 30_000  # of aiokafka, whose members are expelled after ten seconds by themselves


def with_confluent_kafka(task: Task) -> list[str]:
    """Does a task by librdkafka."""
    failures: list[confluent_kafka.KafkaError] = []
    settings = {**_librdkafka_settings(task.login), "error_cb": failures.append}
    producer = confluent_kafka.Producer({**settings, "linger.ms": 0})
    delivered: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        delivered.append(error)

    for value in task.values:
        producer.produce(task.topic, value, on_delivery=on_delivery)
        producer.poll(0)
        time.sleep(task.pause_ms / 1000)
    while len(delivered) < task.records:
        producer.poll(0.1)
        if any(one.code() in REFUSALS for one in failures):
            producer.purge()
            raise RefusedError(" ".join(one.str() for one in failures))
    assert set(delivered) == {None}, delivered
    consumer = confluent_kafka.Consumer({**settings, "group.id": task.topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([task.topic])
    found = [(message.value() or b"").decode() for message in consumer.consume(task.records, TIMEOUT_S)]
    consumer.close()
    return sorted(found, key=int)


def _librdkafka_settings(login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.ca.location": login.authority,
        "log_level": 0,
    }
    if login.certificate:
        settings |= {"ssl.certificate.location": login.certificate, "ssl.key.location": login.key}
    if login.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": login.mechanism, "oauth_cb": lambda _: (login.token, FOREVER_S)}
    elif login.mechanism:
        settings |= {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
        }
    return settings


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # it is not typed
    """The token that kafka-python shows."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def with_kafka_python(task: Task) -> list[str]:
    """Does a task by kafka-python."""
    with _words_of("kafka") as said:
        try:
            return _kafka_python_round(task, _kafka_python_settings(task.login, _Token(task.login.token)), said)
        except kafka.errors.KafkaError as error:
            raise RefusedError(f"{error} {said()}") from error


def _kafka_python_producer(settings: dict[str, Any], said: Callable[[], str]) -> kafka.KafkaProducer:
    """Returns a producer once it has reached the broker; raises KafkaError where it logs that it is refused.

    By itself it would try again after a refusal until its time is over, which is short for a busy machine.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return kafka.KafkaProducer(**settings, bootstrap_timeout_ms=REFUSED_WITHIN_MS)
        except kafka.errors.KafkaError:
            if any(words in said() for words in REFUSED_WORDS) or time.monotonic() > deadline:
                raise


def _kafka_python_round(task: Task, settings: dict[str, Any], said: Callable[[], str]) -> list[str]:
    producer = _kafka_python_producer(settings, said)
    try:
        sent = []
        for value in task.values:
            sent.append(producer.send(task.topic, value.encode()))
            time.sleep(task.pause_ms / 1000)
        for one in sent:
            one.get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    consumer = kafka.KafkaConsumer(
        task.topic, **settings, group_id=task.topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    found = [next(consumer).value.decode() for _ in task.values]
    consumer.close()
    return sorted(found, key=int)


def _kafka_python_settings(login: Login, token: object) -> dict[str, Any]:
    """Returns the settings, whose names kafka-python and aiokafka share."""
    context = ssl.create_default_context(cafile=login.authority)
    if login.certificate:
        context.load_cert_chain(login.certificate, login.key)
    settings: dict[str, Any] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_context": context,
    }
    if login.mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": token}
    elif login.mechanism:
        settings |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return settings


class _AsyncToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]  # it is not typed
    """The token that aiokafka shows."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def with_aiokafka(task: Task) -> list[str]:
    """Does a task by aiokafka, which says in its log alone why it is refused."""
    settings = _kafka_python_settings(task.login, _AsyncToken(task.login.token))
    with _words_of("aiokafka") as said:
        try:
            return asyncio.run(asyncio.wait_for(_aiokafka_round(task, settings), TIMEOUT_S))
        except aiokafka.errors.KafkaError as error:
            raise RefusedError(f"{error} {said()}") from error


async def _aiokafka_round(task: Task, settings: dict[str, Any]) -> list[str]:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in task.values:
            await producer.send_and_wait(task.topic, value.encode())
            await asyncio.sleep(task.pause_ms / 1000)
    async with aiokafka.AIOKafkaConsumer(
        task.topic, **settings, group_id=task.topic, auto_offset_reset="earliest", session_timeout_ms=SESSION_MS
    ) as consumer:
        found = [(await consumer.getone()).value.decode() for _ in task.values]
    return sorted(found, key=int)


@contextmanager
def _words_of(name: str) -> Iterator[Callable[[], str]]:
    """Yields a function that returns all that a library has logged since."""
    words: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    handler = Handler()
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield lambda: " ".join(words)
    finally:
        logger.removeHandler(handler)
