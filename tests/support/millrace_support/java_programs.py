"""Programs of tests in Java, which are compiled once and stay compiled beside Apache Kafka's jars.

    kafka = with_program(find_kafka("4.1"), Path("SecuredClient.java"))
    subprocess.Popen(kafka.command("SecuredClient"), …)

A folder of classes is named after the source that it was made from, and appears as a whole: what a crash leaves behind
is a folder that nobody reads.
"""

import fcntl
import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace.java import find_java
from millrace_benchmarks.kafka_broker import Kafka

COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
TIMEOUT_S = 180


def with_program(kafka: Kafka, source: Path) -> Kafka:
    """Returns Kafka with the classes of a file beside its own, compiled if nobody has done so yet."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    programs = kafka.libs.parent / "programs"
    classes = programs / f"{source.stem}-{digest}"
    programs.mkdir(exist_ok=True)
    with (programs / ".lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not classes.exists():
            _compile(kafka, source, classes)
    return replace(kafka, further_classes=classes)


def _compile(kafka: Kafka, source: Path, classes: Path) -> None:
    with TemporaryDirectory(dir=classes.parent) as folder:
        made, jars = Path(folder, "classes"), os.pathsep.join(map(str, kafka.libs.glob("*.jar")))
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        command = [str(find_java()), *flags, "-m", COMPILER, "-nowarn", "-cp", jars, "-d", str(made)]
        subprocess.run([*command, str(source)], check=True, timeout=TIMEOUT_S)
        made.rename(classes)
