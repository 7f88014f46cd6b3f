"""Small plots: the samples that they are made of, and their lines."""

from millrace_ops.console.plots import HEIGHT, MARGIN, SPAN_S, WIDTH, Rate, plotted
from millrace_ops.console.watch import MAX_TOPICS, SAMPLES, RateRing


def ring(*samples):
    made = RateRing()
    for at_s, ends in samples:
        made.add(at_s, ends)
    return made


def per_s(rates):
    return [one.per_s for one in rates]


def test_a_rate_is_the_growth_in_a_second():
    made = ring((0.0, {"a": 100, "b": 0}), (2.0, {"a": 150, "b": 0}), (3.0, {"a": 150, "b": 7}))
    assert per_s(made.rates("a")) == [25.0, 0.0]
    assert per_s(made.rates("b")) == [0.0, 7.0]
    assert (made.newest_rate("a"), made.newest_rate("b"), made.newest_rate("unknown")) == (0.0, 7.0, 0.0)
    assert per_s(made.total_rates()) == [25.0, 7.0]


def test_a_topic_has_rates_from_its_second_sample_on():
    made = ring((0.0, {"a": 1}), (1.0, {"a": 2, "new": 500}), (2.0, {"a": 2, "new": 510}))
    assert per_s(made.rates("new")) == [10.0]
    assert per_s(made.total_rates()) == [1.0, 10.0], "its first records are no rate"
    assert made.rates("unknown") == []


def test_a_topic_that_was_made_again_has_no_negative_rate():
    made = ring((0.0, {"a": 100}), (1.0, {"a": 3}), (2.0, {}), (3.0, {"a": 9}))
    assert per_s(made.rates("a")) == [0.0]
    assert per_s(made.total_rates()) == [0.0, 0.0, 0.0]


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


def test_rates_know_how_old_they_are():
    made = ring((0.0, {"a": 0}), (10.0, {"a": 10}), (40.0, {"a": 10}))
    assert made.rates("a") == [Rate(30.0, 1.0), Rate(0.0, 0.0)]
    assert made.total_rates() == made.rates("a")


BOTTOM = f"{HEIGHT - MARGIN}.0"


def test_a_line_has_the_same_axis_of_time_however_young_it_is():
    line = plotted([Rate(SPAN_S, 0.0), Rate(SPAN_S / 2, 5.0), Rate(0.0, 10.0)])
    assert line.points == f"0.0,{BOTTOM} {WIDTH / 2},{HEIGHT / 2} {WIDTH}.0,{MARGIN}.0"
    assert (line.newest, line.largest) == (10.0, 10.0)
    young = plotted([Rate(SPAN_S / 4, 0.0), Rate(0.0, 10.0)])
    assert young.points == f"{0.75 * WIDTH},{BOTTOM} {WIDTH}.0,{MARGIN}.0"


def test_rates_from_before_the_span_are_left_out():
    """As after a while in which nobody looked at pages."""
    line = plotted([Rate(SPAN_S + 1, 99.0), Rate(10.0, 0.0), Rate(0.0, 1.0)])
    assert (len(line.points.split()), line.newest, line.largest) == (2, 1.0, 1.0)


def test_a_line_of_nothing_lies_at_the_bottom_and_one_rate_is_no_line():
    assert plotted([Rate(SPAN_S, 0.0), Rate(0.0, 0.0)]).points == f"0.0,{BOTTOM} {WIDTH}.0,{BOTTOM}"
    assert plotted([Rate(0.0, 3.0)]) == ("", 3.0, 3.0)
    assert plotted([]) == ("", 0.0, 0.0)
