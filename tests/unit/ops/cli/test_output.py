"""Tables where nobody watches: a line for each row, columns that stand below each other, nothing drawn or folded."""

from millrace_ops.cli.output import print_rows, print_table


def test_columns_are_aligned_and_numbers_stand_to_the_right(capsys):
    print_table(("topic", "partitions", "id"), [("events", 12, "x"), ("東京", 3, "y")])
    assert capsys.readouterr().out == "topic   partitions  id\nevents          12  x\n東京             3  y\n"


def test_a_long_cell_is_not_folded_and_no_line_ends_in_blanks(capsys):
    print_table(("a", "b"), [("x" * 20_000, "y"), ("z", "")])
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [20_003, 20_003, 20_003]


def test_every_cell_is_one_word_for_a_script(capsys):
    print_table(("a", "b", "c", "d"), [(None, True, [1, 2], "two\nlines\x1b")])
    assert capsys.readouterr().out.splitlines()[1].split() == ["-", "true", "1,2", "two\\nlines\\x1b"]


def test_no_rows_are_a_header(capsys):
    print_table(("topic", "id"), [])
    assert capsys.readouterr().out == "topic  id\n"


def test_no_rows_are_a_sentence_at_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_rows([], as_json=False, columns=("group",), empty="there is no group")
    print_table(("topic", "id"), [])
    assert capsys.readouterr().out == "there is no group\nthere is nothing to show\n"
