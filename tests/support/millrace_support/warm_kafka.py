"""Starts brokers of Apache Kafka in JVMs that stay: `KafkaBroker.start_process = WarmKafka().start`.

A broker then starts in a sixth of the processor time. A JVM runs one broker at a time; one that was stopped in good
order leaves its JVM to the next broker of the same version and the same flags. A broker that is killed, or ends by
itself, ends its JVM.
"""

from __future__ import annotations

import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from millrace_benchmarks.kafka_broker import LOG_FLAGS, Kafka
from millrace_support.idle_jvms import IdleJvms
from millrace_support.java_programs import with_program
from millrace_support.process_stand_in import ProcessStandIn

PROGRAM = Path(__file__).with_name("KafkaBrokers.java")
MAX_IDLE = 2  # each holds a quarter of a gigabyte
Idle: TypeAlias = "IdleJvms[subprocess.Popen[bytes]]"
STOPPED = 128 + signal.SIGTERM  # the exit status of a JVM after SIGTERM


class BrokerInJvm(ProcessStandIn):
    """A broker in a JVM that others share after it, as `KafkaBroker` sees its process."""

    def __init__(self, jvm: subprocess.Popen[bytes], properties: str, log: Path, idle: Idle, kafka: Kafka) -> None:
        super().__init__(("kafka.Kafka", properties), jvm.pid)
        self._jvm, self._idle, self._kafka = jvm, idle, kafka
        self._is_stopping = False
        _write(jvm, f"{properties}\t{log}\n")

    def send_signal(self, sig: int) -> None:
        """Stops the broker where the signal is SIGTERM; any other one goes to the JVM."""
        if sig == signal.SIGTERM and self.poll() is None:
            self._is_stopping = True
            with suppress(BrokenPipeError):  # the JVM has just ended, and `wait` returns how
                _write(self._jvm, "\n")
        else:
            self._jvm.send_signal(sig)

    def kill(self) -> None:
        """Kills the JVM."""
        self._jvm.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status that a process would have; raises TimeoutExpired."""
        if self.returncode is None and self._is_stopping and self._has_stopped(timeout):
            self.returncode = STOPPED
            self._idle.keep(self._kafka, self._jvm)
        if self.returncode is None:
            self.returncode = self._jvm.wait(timeout)
            _close(self._jvm)
        return self.returncode

    def _has_stopped(self, timeout: float | None) -> bool:
        """Waits for the answer to a stop; false where the JVM has ended instead. Raises TimeoutExpired."""
        assert self._jvm.stdout is not None
        if not select.select([self._jvm.stdout], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return bool(self._jvm.stdout.readline())


class WarmKafka:
    """The JVMs of brokers; those that are idle end with `close`, or with this process."""

    def __init__(self) -> None:
        self._idle: Idle = IdleJvms(MAX_IDLE, _end)
        self.close = self._idle.close

    def start(self, kafka: Kafka, properties: str, log: Path) -> subprocess.Popen[bytes]:
        """Starts what `start_broker` of `millrace_benchmarks.kafka_broker` starts with these arguments."""
        jvm = self._idle.take(kafka) or _new_jvm(kafka)
        log.write_bytes(b"")  # so that it can be read before the JVM opens it
        return BrokerInJvm(jvm, properties, log, self._idle, kafka)


def _new_jvm(kafka: Kafka) -> subprocess.Popen[bytes]:
    command = with_program(kafka, PROGRAM).command(PROGRAM.stem, flags=LOG_FLAGS)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _write(jvm: subprocess.Popen[bytes], line: str) -> None:
    assert jvm.stdin is not None
    jvm.stdin.write(line.encode())
    jvm.stdin.flush()


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """Ends a JVM, which the end of its standard input tells."""
    _close(jvm)
    jvm.wait()


def _close(jvm: subprocess.Popen[bytes]) -> None:
    for pipe in (jvm.stdin, jvm.stdout):
        assert pipe is not None
        pipe.close()
