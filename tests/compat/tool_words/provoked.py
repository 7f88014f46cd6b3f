"""Command lines of Apache Kafka's tools, as a shell has them, and what the tools print to them.

    kafka-topics --create --topic there
    kafka-console-producer --topic nobody <<< text
    kafka-delete-records --offset-json-file '@{"partitions": []}'

A tool gets `--bootstrap-server` unless `BROKER` stands somewhere. A word behind `@` is a file of `FILES`, or the
content of one, and the word behind `<<<` is the standard input.
"""

import re
import shlex

from millrace_support.kafka_tools import main_class

BROKER, FROM_TEXT, IN_FILE = "BROKER", "<<<", "@"
FILES = {"hurry": "default.api.timeout.ms=30000\nrequest.timeout.ms=30000\n"}  # a tool waits for a minute otherwise
STACK_FRAME = re.compile(r"^\s*(at |\.\.\. \d+ more)")
FRAMES = (  # around the same sentence, which a tool prints several times
    r"\[main\] ERROR \S+ - ",
    r"Caused by: ",
    r"\tSuppressed: ",
    r"Error( while executing [\w ]+)? ?: ",
    r"(java\.util\.concurrent\.ExecutionException|java\.lang\.RuntimeException): ",
    r'Exception in thread "main" ',
)
FRAME = re.compile(f"^({'|'.join(FRAMES)})+")
OF_A_THREAD = re.compile(
    r"\[kafka-\S+-thread \| "
)  # what a client logs meanwhile, before or after the tool's own lines
EXCEPTION = re.compile(r"(org\.apache\.kafka\.\S+Exception): ")
NEVER_THE_SAME = (
    (r"\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,:]\d{3}\]?", "TIME"),
    (r"(127\.0\.0\.1|localhost)(/<unresolved>|/127\.0\.0\.1)?:\d+", BROKER),
    (r"/\S*/file-\d+", "FILE"),
    (r"/\S*/(old|new|millrace)\b", "DATA"),
    (r"correlation id \d+", "correlation id N"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"Member \S{22} ", "Member ID "),
    (r"(producer|consumer|client)-(\d+-)*\d+", r"\1-N"),
    (r"Call\(callName=(\S+\)), deadlineMs.* attempt\(s\)", r"no answer: \1"),  # which of the two it says, is by chance
    (r"Timed out waiting for a node assignment\. Call: (\S+\))", r"no answer: \1"),
    (r"(HighWatermark|LeaderEpoch|MaxFollowerLagTimeMs): +\d+", r"\1: N"),
    (r"batch of \d+ bytes", "batch of N bytes"),
)


def provoke(run, kafka, bootstrap, command, folder):
    """Returns what a command line prints: each line once, exceptions in lines of their own, and no stack traces.

    What a client's own thread logs comes last, as it may come before or after the tool's lines. `run` returns the exit
    status of a main class and what it prints; new files are made in the folder.
    """
    words, _, text = command.partition(f" {FROM_TEXT} ")
    tool, *arguments = (_in_file(word, folder) for word in shlex.split(words))
    if BROKER not in words:
        arguments = ["--bootstrap-server", bootstrap, *arguments]
    arguments = [word.replace(BROKER, bootstrap) for word in arguments]
    stdin = "".join(f"{line}\n" for line in shlex.split(text))
    _, printed = run(kafka, main_class(kafka, tool), *arguments, stdin=stdin.encode())
    return sorted(dict.fromkeys(_essential(printed)), key=lambda line: OF_A_THREAD.match(line) is not None)


def _in_file(word, folder):
    if not word.startswith(IN_FILE):
        return word
    file = folder / f"file-{len(list(folder.iterdir()))}"
    text = word.removeprefix(IN_FILE)
    file.write_text(FILES.get(text, text))
    return str(file)


def _essential(printed):
    for pattern, name in NEVER_THE_SAME:
        printed = re.sub(pattern, name, printed)
    for line in printed.splitlines():
        if not STACK_FRAME.match(line):
            parts = EXCEPTION.sub("\\1\n", FRAME.sub("", line).replace("\t", " ")).split("\n")
            yield from filter(None, map(str.strip, parts))
