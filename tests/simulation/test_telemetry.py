from collections.abc import Sequence
from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.simulation.telemetry import Histogram, Telemetry
from rdpfl_sim.world.observer import UsedMessage

BYZANTINE = frozenset({3})
HOPS = [2, 1, None, 0, 1]


def telemetry() -> Telemetry:
    return Telemetry(BYZANTINE, HOPS, too_few=lambda num_messages: num_messages <= 2)


def finish(
    seen: Telemetry,
    client: int,
    senders: Sequence[int],
    weights: Sequence[float] | None = None,
    round_: int = 1,
    stamps: Sequence[int] | None = None,
    **diagnostics: object,
) -> None:
    """Finish a round of a client with messages from these senders."""
    stamps = stamps or [round_] * len(senders)
    messages = [UsedMessage(0, sender, client, stamp) for sender, stamp in zip(senders, stamps, strict=True)]
    seen.round_finished(client, messages, [round_ - stamp for stamp in stamps])
    seen.update_reported(client, messages, diagnostics, weights)


# Histograms


def filled(values: Sequence[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(
    st.lists(st.floats(1e-300, 1e300) | st.floats(0.01, 10.0) | st.just(0.0), min_size=1, max_size=200),
    st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]),
)
def test_quantile_is_within_seven_percent_of_the_exact_one(values: list[float], q: float) -> None:
    exact = np.quantile(values, q, method="inverted_cdf")
    assert filled(values).quantile(q) == pytest.approx(exact, rel=0.07, abs=0.0)


@pytest.mark.parametrize("distribution", ["exponential", "lognormal", "pareto", "uniform"])
def test_quantiles_of_usual_delays_are_close_to_those_of_numpy(distribution: str) -> None:
    rng = np.random.default_rng(0)
    draw = {
        "exponential": lambda: rng.exponential(0.1, 5000),
        "lognormal": lambda: rng.lognormal(-2.0, 1.5, 5000),
        "pareto": lambda: 0.05 * (1 + rng.pareto(1.5, 5000)),
        "uniform": lambda: rng.uniform(3.0, 5.0, 5000),
    }[distribution]
    values = [*draw(), *np.zeros(500)]
    summary = filled(values).summary()
    assert summary is not None
    assert summary["mean"] == pytest.approx(np.mean(values))
    assert summary["max"] == max(values)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert summary[name] == pytest.approx(np.quantile(values, q), rel=0.07)


def test_quantile_of_zeros_is_zero() -> None:
    assert filled([0.0] * 9 + [5.0]).quantile(0.9) == 0.0
    assert filled([0.0] * 8 + [5.0] * 2).quantile(0.9) == pytest.approx(5.0, rel=0.07)
    assert filled([0.0]).summary() == {"mean": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}


@given(st.lists(st.floats(0.0, 1e6), min_size=1))
def test_no_quantile_is_above_the_largest_value_and_they_are_in_order(values: list[float]) -> None:
    summary = filled(values).summary()
    assert summary is not None
    assert 0.0 <= summary["p50"] <= summary["p90"] <= summary["p99"] <= summary["max"] == max(values)


def test_memory_of_a_histogram_does_not_grow_with_the_number_of_values() -> None:
    values = np.random.default_rng(0).uniform(1.0, 16.0, 20_000)
    assert len(filled(values).bins) <= 4 * 8


def test_empty_histogram_has_no_summary() -> None:
    assert Histogram().summary() is None
    assert telemetry().summary()["delay_s"] is None


# Rounds


def test_honest_rounds_with_too_few_messages_for_the_trimmed_mean_are_counted() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2, 3])
    finish(seen, 0, [1, 3], round_=2)
    finish(seen, 0, [], round_=3)  # nothing to cut from
    finish(seen, 1, [0])
    finish(seen, 3, [0])  # Byzantine
    assert seen.summary()["num_trimmed_less"] == 2


def test_rounds_that_used_a_byzantine_message_are_counted_as_attacked() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2])
    finish(seen, 0, [1, 3], round_=2)
    finish(seen, 1, [], round_=1)
    rounds = seen.summary()["rounds"]
    assert {kind: entry["num"] for kind, entry in rounds.items()} == {"all": 3, "clean": 2, "attacked": 1}
    assert {kind: entry["used_per_round"] for kind, entry in rounds.items()} == {
        "all": pytest.approx(4 / 3),
        "clean": 1.0,
        "attacked": 2.0,
    }


def test_rounds_of_byzantine_clients_do_not_count() -> None:
    seen = telemetry()
    finish(seen, 3, [0, 1], weights=[0.5, 0.5], tau=1.0, clipped=True)
    seen.dropped(0, 3, "rejected", "not finite")
    summary = seen.summary()
    assert summary["rounds"]["all"]["num"] == 0
    assert summary["age"] == {}
    assert summary["by_hops"] == {}
    assert summary["false_rejections"] is None
    assert summary["messages_from"]["honest"]["used"] == 0
    assert summary["messages_from"]["honest"]["relative_weight"] is None
    assert seen.since_last_evaluation(3)["used_per_round"] == 2.0, "but its own row in metrics.csv has them"


def test_ages_are_counted_and_averaged_over_messages() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2, 4], round_=5, stamps=[5, 2, 6])
    finish(seen, 1, [2], round_=3, stamps=[2])
    assert seen.summary()["age"] == {-1: 1, 0: 1, 1: 1, 3: 1}
    assert list(seen.summary()["age"]) == [-1, 0, 1, 3]
    assert seen.summary()["rounds"]["all"]["mean_age"] == (0 + 3 - 1 + 1) / 4


def test_clipping_is_a_fraction_of_the_rounds_with_an_estimate() -> None:
    seen = telemetry()
    finish(seen, 0, [1], tau=1.0, clipped=True, bounded=False)
    finish(seen, 0, [1], tau=1.0, clipped=False, bounded=True)
    finish(seen, 0, [1], tau=1.0, clipped=True, bounded=False)
    finish(seen, 0, [])
    rounds = seen.summary()["rounds"]["all"]
    assert rounds["clipped"] == pytest.approx(2 / 3)
    assert rounds["bounded"] == pytest.approx(1 / 3)
    assert rounds["num"] == 4


def test_mean_of_nothing_is_none() -> None:
    rounds = telemetry().summary()["rounds"]["all"]
    assert rounds.pop("num") == 0
    assert set(rounds.values()) == {None}


# Weights


def test_byzantine_weight_is_the_mean_over_weighed_rounds_of_their_share() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2, 3], weights=[0.5, 0.25, 0.25])
    finish(seen, 0, [1, 2], weights=[0.5, 0.5])
    finish(seen, 0, [1, 3])  # by a method without message weights
    rounds = seen.summary()["rounds"]
    assert rounds["all"]["byzantine_weight"] == 0.125
    assert rounds["attacked"]["byzantine_weight"] == 0.25
    assert rounds["clean"]["byzantine_weight"] == 0.0


def test_weights_are_relative_to_an_equal_share_and_zero_is_ignored() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2, 3, 4], weights=[0.5, 0.5, 0.0, 0.0])
    finish(seen, 1, [2, 3], weights=[0.25, 0.75])
    honest, byzantine = (seen.summary()["messages_from"][who] for who in ("honest", "byzantine"))
    assert honest["relative_weight"] == (4 * 0.5 + 4 * 0.5 + 0 + 2 * 0.25) / 4
    assert honest["ignored"] == 1 / 4
    assert byzantine["relative_weight"] == (0 + 2 * 0.75) / 2
    assert byzantine["ignored"] == 1 / 2


def test_round_with_a_weight_that_is_not_finite_does_not_count_as_weighed() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 3], weights=[0.25, 0.75])
    finish(seen, 0, [1, 3], weights=[nan, 0.5])
    assert seen.summary()["rounds"]["all"]["byzantine_weight"] == 0.75
    assert seen.summary()["messages_from"]["honest"]["relative_weight"] == 0.5


def test_messages_without_weights_are_not_weighed() -> None:
    seen = telemetry()
    finish(seen, 0, [3], weights=None)
    assert seen.summary()["rounds"]["all"]["byzantine_weight"] is None
    assert seen.summary()["messages_from"]["byzantine"]["ignored"] is None
    assert seen.summary()["messages_from"]["byzantine"]["used"] == 1


# Outcomes


def test_outcomes_are_counted_for_honest_and_byzantine_senders() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 3])
    for sender, outcome in ((1, "stale"), (2, "stale"), (3, "duplicate"), (3, "rejected"), (4, "duplicate")):
        seen.dropped(sender, 0, outcome, "any")
    outcomes = ("used", "stale", "duplicate", "rejected")
    messages_from = seen.summary()["messages_from"]
    assert [messages_from["honest"][outcome] for outcome in outcomes] == [1, 2, 1, 0]
    assert [messages_from["byzantine"][outcome] for outcome in outcomes] == [1, 0, 1, 1]


def test_false_rejections_are_the_fraction_of_honest_messages_that_were_rejected() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2])
    seen.dropped(1, 0, "stale", "too old")
    seen.dropped(2, 0, "rejected", "not finite")
    seen.dropped(3, 0, "rejected", "not finite")  # rightly
    assert seen.summary()["false_rejections"] == 1 / 4


def test_discarded_messages_are_fractions_of_those_delivered_between_honest_clients() -> None:
    seen = telemetry()
    assert seen.summary()["too_old"] is None
    for sender, recipient in ((1, 0), (2, 0), (4, 0), (0, 1), (3, 0), (0, 3)):
        seen.delivered(sender, recipient, 0.1)
    for sender, recipient, reason in (
        *((1, 0, "too old"), (2, 0, "too old"), (4, 0, "mailbox full"), (0, 1, "newer message chosen")),
        *((3, 0, "too old"), (0, 3, "mailbox full")),  # client 3 is Byzantine
    ):
        seen.dropped(sender, recipient, "stale", reason)
    summary = seen.summary()
    assert (summary["too_old"], summary["mailbox_full"]) == (2 / 4, 1 / 4)
    assert summary["delay_s"]["mean"] == pytest.approx(0.1), "over all messages"


# Distance to the nearest attacker


def test_honest_clients_are_grouped_by_their_hops_to_an_attacker() -> None:
    seen = telemetry()
    finish(seen, 0, [1])
    finish(seen, 1, [0, 3], weights=[0.25, 0.75])
    finish(seen, 4, [0, 1, 3, 2], weights=[0.25, 0.25, 0.25, 0.25])
    finish(seen, 2, [0])  # no path leads from it to an attacker
    finish(seen, 3, [1, 4])
    by_hops = seen.summary()["by_hops"]
    assert list(by_hops) == ["1", "2"]
    assert by_hops["1"]["used_per_round"] == 3.0
    assert by_hops["1"]["byzantine_weight"] == 0.5
    assert by_hops["2"]["byzantine_weight"] is None


# Since the last evaluation


def test_means_cover_the_rounds_since_the_last_evaluation() -> None:
    seen = telemetry()
    finish(seen, 0, [1, 2])
    finish(seen, 0, [1], round_=2)
    finish(seen, 1, [0])
    assert seen.since_last_evaluation(0)["used_per_round"] == 1.5
    finish(seen, 0, [], round_=3)
    assert seen.since_last_evaluation(0) == {
        "used_per_round": 0.0,
        "mean_age": None,
        "clipped": None,
        "bounded": None,
        "byzantine_weight": None,
        "neighbour_share": None,
    }
    assert set(seen.since_last_evaluation(0).values()) == {None}
    assert seen.since_last_evaluation(1)["used_per_round"] == 1.0
    assert seen.summary()["rounds"]["all"]["num"] == 4, "the summary is of the whole run"


def test_neighbour_share_is_the_mean_over_rounds_that_have_one_of_honest_clients() -> None:
    seen = telemetry()
    finish(seen, 0, [1], neighbour_share=0.5)
    finish(seen, 0, [], neighbour_share=None, round_=2)
    finish(seen, 1, [3], neighbour_share=1.5)
    finish(seen, 3, [1], neighbour_share=100.0)  # a Byzantine client
    summary = seen.summary()
    assert (summary["neighbour_share"]["mean"], summary["neighbour_share"]["max"]) == (1.0, 1.5)
    assert [summary["rounds"][kind]["neighbour_share"] for kind in ("all", "clean", "attacked")] == [
        1.0,
        0.5,
        1.5,
    ]
    assert summary["by_hops"]["2"]["neighbour_share"] == 0.5
    assert seen.since_last_evaluation(3)["neighbour_share"] == 100.0
    finish(telemetry(), 0, [1])
    assert telemetry().summary()["neighbour_share"] is None


def test_delays_have_mean_and_quantiles() -> None:
    seen = telemetry()
    for delay_s in (0.25, 0.25, 1.0):
        seen.delivered(0, 1, delay_s)
    delays = seen.summary()["delay_s"]
    assert (delays["mean"], delays["max"]) == (0.5, 1.0)
    assert delays["p50"] == pytest.approx(0.25, rel=0.07)
