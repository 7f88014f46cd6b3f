"""Clients in other languages, each as one program that does task after task.

The program reads a task as a line of JSON and answers with another one: `{"values": [...]}` or `{"refused": "words"}`.
So no secret is an argument, and nothing is started twice.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Self

from millrace.errors import SetupError
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace_support.secured_clients.task import Login, RefusedError, Task

TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"  # noqa: S105


class ClientProgram:
    """A program that runs until the end of the `with`; as a function it does a task."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()  # the end of its stdin ends the program
        self._process.wait()

    def __call__(self, task: Task) -> list[str]:
        """Does a task. Raises RefusedError with the client's words; raises SetupError where the program has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(_as_json(task)).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise SetupError(f"{self._command[0]} has ended")
        answer = json.loads(line)
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return sorted(answer["values"], key=int)


@contextmanager
def client_programs(command: Callable[[str], Sequence[str]]) -> Iterator[Callable[[str], ClientProgram]]:
    """Yields a function that returns the program of a client by its name, which is started once."""
    running: dict[str, ClientProgram] = {}
    with ExitStack() as stack:

        def program(name: str) -> ClientProgram:
            if name not in running:
                running[name] = stack.enter_context(ClientProgram(command(name)))
            return running[name]

        yield program


def _as_json(task: Task) -> dict[str, object]:
    own = {"topic": task.topic, "records": task.records, "pause_ms": task.pause_ms}
    return {**own, **asdict(task.login), "properties": client_properties(task.login)}


def client_properties(login: Login) -> dict[str, str]:
    """Returns a login as the properties of a client of Java."""
    properties = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login.authority,
    }
    if login.key_store:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": login.key_store}
    if login.mechanism:
        properties |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": _jaas(login)}
    if login.mechanism == "OAUTHBEARER":
        properties |= {
            "sasl.login.callback.handler.class": TOKEN_HANDLER,
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
        }
    return properties


def _jaas(login: Login) -> str:
    module = LOGIN_MODULES[login.mechanism]
    if login.mechanism == "OAUTHBEARER":
        return f'{module} required clientId="{login.user}" clientSecret="{login.password}";'
    token = ' tokenauth="true"' if login.is_delegated else ""
    return f'{module} required username="{login.user}" password="{login.password}"{token};'
