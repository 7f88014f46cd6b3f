"""The process that does a run's jobs, played by short programs: what it tells, how it ends, and that it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest

from millrace_pipelines.defs import load_process
from millrace_pipelines.defs.load_process import run_jobs
from millrace_pipelines.runs.jobs import PROCESS_ENDED, Failed, LoadJob
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_support.warm_python import ADDRESS

GONE_TIMEOUT_S = 120  # seconds on a machine that is not busy
PROLOGUE = """
import os, signal, subprocess, sys, time
from dagster_pipes import open_dagster_pipes
from millrace_pipelines.runs.jobs import MESSAGE, WORK, Failed, Message, write_report
from millrace_pipelines.warehouse.load.report import LoadReport

with open_dagster_pipes() as context:
    work = WORK.validate_python(context.extras)
    def tell(**message):
        context.report_custom_message(MESSAGE.dump_python(Message(**message), mode="json"))
    def done(job, version):
        report = LoadReport(topic=job.options.topic, table=job.options.table, rows=version or 0, version=version)
        tell(key=job.key, report=write_report(job, report))
    for job in work.jobs:
        tell(key=job.key)
        topic = job.options.topic
"""
PLAYED = {
    "done": "done(job, 7)",
    "nothing new": "done(job, None)",
    "fails": "tell(key=job.key, failed=Failed(sentence='it is broken', error='SchemaError', may_pass=False))",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "os._exit(3)",
}


@pytest.fixture
def warm(monkeypatch, warm_programs):
    """Lets the programs that a test starts start warm."""
    for name, value in warm_programs.items():
        monkeypatch.setenv(name, value)


def job(topic):
    return LoadJob(key=f"table/{topic}", options=LoadOptions(topic=topic, table=topic, bootstrap="nowhere"))


def play(monkeypatch, program):
    monkeypatch.setattr(load_process, "COMMAND", (sys.executable, "-c", program))


def run(jobs, **how):
    """Runs a step that does the jobs, and returns their outcomes."""
    outcomes = {}

    @dg.op
    def step(context: dg.OpExecutionContext):
        outcomes.update(run_jobs(context, jobs, **how))

    @dg.job
    def steps():
        step()

    assert steps.execute_in_process().success
    return outcomes


def test_each_job_has_its_outcome_whatever_becomes_of_the_others(monkeypatch, warm):
    cases = "".join(f"        if topic == {name!r}:\n            {what}\n" for name, what in PLAYED.items())
    play(monkeypatch, PROLOGUE + cases)
    outcomes = run([job(name) for name in PLAYED])
    assert [type(outcomes[f"table/{name}"]) for name in PLAYED] == [LoadReport, LoadReport, *[Failed] * 3]
    assert outcomes["table/done"].rows == 7
    assert outcomes["table/fails"].sentence == "it is broken"
    killed, exits = outcomes["table/killed"], outcomes["table/exits"]
    assert killed.sentence.startswith("the process of the load was killed (SIGKILL), perhaps because")
    assert exits.sentence.startswith("the process of the load ended with exit status 3 without a report")
    assert (killed.error, killed.may_pass, exits.may_pass) == (PROCESS_ENDED, True, False)


def test_jobs_of_a_process_that_begins_none_fail(monkeypatch, warm):
    play(monkeypatch, "raise SystemExit(2)")
    outcomes = run([job("a"), job("b")])
    assert [one.sentence.split(";")[0] for one in outcomes.values()] == [
        "the process of the load ended with exit status 2 before it began"
    ] * 2


def test_no_setting_is_on_the_command_line_or_in_the_environment(monkeypatch):
    seen = (
        "            assert 'hu' + 'sh' not in open('/proc/self/cmdline').read() + open('/proc/self/environ').read()\n"
    )
    told = "            assert work.spark_settings == {'spark.secret': 'hu' + 'sh'} and work.master == 'local[3]'\n"
    told += "            assert work.stores == {'s3://': {'aws_token': 'hu' + 'sh'}}\n"
    play(monkeypatch, PROLOGUE + "        if True:\n" + seen + told + "            done(job, 1)\n")
    stores = {"s3://": {"aws_token": "hush"}}
    outcomes = run([job("a")], master="local[3]", spark_settings={"spark.secret": "hush"}, stores=stores)
    assert isinstance(outcomes["table/a"], LoadReport)


STEP = """
import dagster as dg, os, sys
del os.environ[{warm!r}]  # for the child, whose processes are counted
sys.path.insert(0, {here!r})
from test_dagster_child import *
load_process.COMMAND = (sys.executable, "-c", {then!r})
@dg.op
def step(context: dg.OpExecutionContext):
    dict(run_jobs(context, [job("a")]))
@dg.job
def steps():
    step()
steps.execute_in_process()
"""
SLEEPS = """
import os, signal, subprocess, time
subprocess.Popen(["sleep", "600"])
open({pids!r}, "w").write(str(os.getpid()))
time.sleep(600)
"""
IGNORES = SLEEPS.replace("time\n", "time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n", 1)


@pytest.mark.parametrize("then", [SLEEPS, IGNORES], ids=["a child that listens", "a child that does not"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("warm")
def test_no_process_is_left_of_a_run_that_is_ended(tmp_path, end, then):
    pids = tmp_path / "pid"
    program = STEP.format(warm=ADDRESS, here=str(Path(__file__).parent), then=then.format(pids=str(pids)))
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as worker:
        while not (pids.exists() and pids.read_text()):
            assert worker.poll() is None
            time.sleep(0.05)
        child = psutil.Process(int(pids.read_text()))
        processes = [child, *child.children(recursive=True)]
        assert len(processes) == 3  # it, its own child, and the watcher of its lifeline
        os.kill(worker.pid, end)
        assert psutil.wait_procs(processes, timeout=GONE_TIMEOUT_S)[1] == []
        worker.wait(GONE_TIMEOUT_S)
