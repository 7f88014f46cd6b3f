"""Runs Apache Kafka's command-line tools in JVMs that stay: `Kafka.run = WarmTools().run`.

A tool then starts in a fraction of a second. Each version has a JVM, started with its first tool; a tool that runs
while another one does has a JVM of its own, and so has each program of a test (`Kafka.further_classes`). A tool may end
by Kafka's `Exit` and have hooks run there; one that hands hooks to Java itself is to be named below. One that leaves
threads behind is the last one of its JVM, as a client that nobody closes connects to its broker for ever.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import IO

from millrace.errors import SetupError
from millrace_benchmarks.kafka_broker import LOG_TAIL_CHARACTERS, TOOL_TIMEOUT_S, Kafka
from millrace_support.idle_jvms import IdleJvms
from millrace_support.java_programs import with_program

PROGRAM = Path(__file__).with_name("KafkaTools.java")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
HEAP = "-Xmx256m"
MAX_IDLE = 2  # one for each version
AT_THE_END_OF_ITS_JVM = ("org.apache.kafka.tools.VerifiableProducer",)  # when it sends the rest and says so
NUMBER = struct.Struct(">i")
run_in_own_jvm = Kafka.run


class ToolsJvm:
    """A JVM that runs tools one after another.

    Attributes:
        has_threads_left: Whether the last tool has left threads behind, clients that connect until the JVM ends.
    """

    def __init__(self, kafka: Kafka) -> None:
        command = with_program(kafka, PROGRAM).command(PROGRAM.stem, flags=(QUIET,))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.has_threads_left = False

    def run(self, words: Sequence[str], stdin: bytes) -> tuple[int, bytes]:
        """Returns the exit status of a main class with its arguments, and what it has printed; sets `has_threads_left`.

        Raises:
            SetupError: The tool takes longer than three minutes, or has ended the JVM; this object is of no more use.
        """
        request = [NUMBER.pack(len(words)), *map(_with_length, (*(word.encode() for word in words), stdin))]
        timer = Timer(TOOL_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._stdin.write(b"".join(request))
            self._stdin.flush()
            status, threads, size = self._number(), self._number(), self._number()
            self.has_threads_left = threads > 0
            return status, self._read(size)
        except (BrokenPipeError, EOFError):
            status = self.close()
            raise SetupError(f"{words[0]} has ended the JVM of tools with {status}, or is too slow") from None
        finally:
            timer.cancel()

    def close(self) -> int:
        """Ends the JVM, which the end of its standard input tells, and returns its exit status."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return self._process.wait()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _number(self) -> int:
        (number,) = NUMBER.unpack(self._read(NUMBER.size))
        return int(number)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(size)
        if len(found) < size:
            raise EOFError
        return found


class WarmTools:
    """The JVMs of all versions; those that are idle end with `close`, or with this process."""

    def __init__(self) -> None:
        self._idle: IdleJvms[ToolsJvm] = IdleJvms(MAX_IDLE, ToolsJvm.close)
        self.close = self._idle.close

    def run(self, kafka: Kafka, main_class: str, *arguments: str, stdin: bytes = b"") -> str:
        """Does what `Kafka.run` does."""
        if kafka.further_classes is not None or main_class in AT_THE_END_OF_ITS_JVM:
            return run_in_own_jvm(kafka, main_class, *arguments, stdin=stdin)
        status, output = self.attempt(kafka, main_class, *arguments, stdin=stdin)
        if status:
            raise SetupError(f"{main_class} ends with {status}:\n{output[-LOG_TAIL_CHARACTERS:]}")
        return output

    def attempt(self, kafka: Kafka, main_class: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """Returns the exit status of a tool that may fail, and all that it prints."""
        key = _of_tools(kafka)
        jvm = self._idle.take(key) or ToolsJvm(key)
        status, printed = jvm.run([main_class, *arguments], stdin)
        if jvm.has_threads_left:
            jvm.close()
        else:
            self._idle.keep(key, jvm)
        return status, printed.decode(errors="replace")


def _with_length(some: bytes) -> bytes:
    return NUMBER.pack(len(some)) + some


def _of_tools(kafka: Kafka) -> Kafka:
    """Returns the version that has the same tools, with their heap instead of the broker's."""
    flags = (flag for flag in kafka.java_flags if not flag.startswith(("-Xms", "-Xmx")))
    return replace(kafka, java_flags=(*flags, HEAP))
