"""Small plots: the samples that they are made of, and their lines."""

from millrace_ops.console.rendering import HEIGHT, MARGIN, WIDTH, sparkline
from millrace_ops.console.watch import MAX_TOPICS, SAMPLES, RateRing


def ring(*samples):
    made = RateRing()
    for at_s, ends in samples:
        made.add(at_s, ends)
    return made


def test_a_rate_is_the_growth_in_a_second():
    made = ring((0.0, {"a": 100, "b": 0}), (2.0, {"a": 150, "b": 0}), (3.0, {"a": 150, "b": 7}))
    assert made.rates("a") == [25.0, 0.0]
    assert made.rates("b") == [0.0, 7.0]
    assert (made.newest_rate("a"), made.newest_rate("b"), made.newest_rate("unknown")) == (0.0, 7.0, 0.0)
    assert made.total_rates() == [25.0, 7.0]


def test_a_topic_has_rates_from_its_second_sample_on():
    made = ring((0.0, {"a": 1}), (1.0, {"a": 2, "new": 500}), (2.0, {"a": 2, "new": 510}))
    assert made.rates("new") == [10.0]
    assert made.total_rates() == [1.0, 10.0], "its first records are no rate"
    assert made.rates("unknown") == []


def test_a_topic_that_was_made_again_has_no_negative_rate():
    made = ring((0.0, {"a": 100}), (1.0, {"a": 3}), (2.0, {}), (3.0, {"a": 9}))
    assert made.rates("a") == [0.0]
    assert made.total_rates() == [0.0, 0.0, 0.0]


def test_memory_is_bounded():
    made = RateRing()
    for number in range(3 * SAMPLES):
        made.add(float(number), {"a": number})
    assert len(made.rates("a")) == SAMPLES - 1
    made.add(1000.0, {str(number): 1 for number in range(MAX_TOPICS + 1)})
    assert made.rates("0") == []


def test_topics_that_come_and_go_begin_the_plots_again_in_the_end():
    made = RateRing()
    for round_ in range(3):
        made.add(float(round_), {f"{round_}-{number}": number for number in range(MAX_TOPICS)})
    assert len(made._places) == MAX_TOPICS


def test_a_line_spans_the_plot():
    line = sparkline([0.0, 5.0, 10.0])
    assert line.points == f"0.0,{HEIGHT - MARGIN}.0 {WIDTH / 2},{HEIGHT / 2} {WIDTH}.0,{MARGIN}.0"
    assert (line.newest, line.largest) == (10.0, 10.0)


def test_a_line_of_nothing_lies_at_the_bottom_and_one_value_is_no_line():
    assert sparkline([0.0, 0.0]).points == f"0.0,{HEIGHT - MARGIN}.0 {WIDTH}.0,{HEIGHT - MARGIN}.0"
    assert sparkline([3.0]) == ("", 3.0, 3.0)
    assert sparkline([]) == ("", 0.0, 0.0)
