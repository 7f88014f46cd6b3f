"""What a terminal and a file are shown of a running load."""

from rich.console import Console
from rich.progress import Progress

from millrace_ops.cli.warehouse_progress import BarListener, LineListener
from millrace_pipelines.warehouse.load.options import Step


def test_a_terminal_shows_what_the_load_waits_for_and_how_far_its_tasks_are():
    progress = Progress(console=Console(quiet=True))
    listener = BarListener(progress)
    [bar] = progress.tasks
    shown = [bar.description]
    for step in (Step.PLANNED, Step.WRITTEN):
        listener.reached(step)
        shown.append(bar.description)
    listener.tasks_done(1, 4, 25_000)
    assert shown == ["starting", "planned, starting Spark", "written"]
    assert (bar.description, bar.completed, bar.total) == ("25,000 records", 1, 4)


def test_a_file_has_a_line_for_each_step_and_each_change_of_the_tasks(capsys):
    listener = LineListener()
    listener.reached(Step.PLANNED)
    for done in (0, 0, 1):
        listener.tasks_done(done, 2, 10 * done)
    assert capsys.readouterr().err == "planned, starting Spark\n0 of 2 tasks, 0 records\n1 of 2 tasks, 10 records\n"
