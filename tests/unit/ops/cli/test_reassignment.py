"""How moves of partitions are shown: a bar of bytes at a terminal, or of partitions; elsewhere lines."""

from rich.progress import Progress as Bars

from millrace_ops.cli.reassignment import BarListener, LineListener
from millrace_ops.replicas.carry_out import Progress


def shown(*progress):
    bars = Bars()
    listener = BarListener(bars)
    for one in progress:
        listener.progressed(one)
    [task] = bars.tasks
    return task.description, task.completed, task.total


def test_the_bar_counts_bytes_and_without_any_partitions():
    assert shown(Progress(1, 4, 300, 1_000)) == ("1 of 4 partition(s)", 300, 1_000)
    assert shown(Progress(0, 4, 0, 0), Progress(3, 4, 0, 0)) == ("3 of 4 partition(s)", 3, 4)


def test_a_line_is_written_when_another_partition_is_done(capsys):
    listener = LineListener()
    for one in (Progress(0, 2, 0, 2_000), Progress(0, 2, 900, 2_000), Progress(2, 2, 2_000, 2_000)):
        listener.progressed(one)
    assert capsys.readouterr().err.splitlines() == [
        "0 of 2 partition(s), 0 of 2,000 bytes",
        "2 of 2 partition(s), 2,000 of 2,000 bytes",
    ]
