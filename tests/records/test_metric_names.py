"""Words and units for the numbers in summary.json."""

import re

import pytest

from rdpfl_sim.records.summary import METRIC_NAMES, metric_name


def test_every_metric_has_a_label_of_its_own_in_words() -> None:
    labels = [metric_name(path).label for path in METRIC_NAMES]
    assert len(set(labels)) == len(labels)
    for label in labels:
        assert re.fullmatch(r"[A-Z19][^_]*", label.replace("G_d", "G")), label
        assert len(label) <= 80, label


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("accuracy.honest.personal.mean", "Mean personal accuracy of honest clients"),
        (
            "updated.accuracy.honest.personal.mean",
            "Mean personal accuracy of honest clients after the exchange",
        ),
        ("updated.time_to_accuracy_s.0.85", "Simulated time to accuracy 0.85 after the exchange (s)"),
        ("accuracy.all.global.p10", "10th percentile of global accuracy of all clients"),
        ("simulated_s", "Simulated time (s)"),
        ("time_to_accuracy_s.0.85", "Simulated time to accuracy 0.85 (s)"),
        ("telemetry.delay_s.p90", "90th percentile of message delay (s)"),
        ("messages.in_flight", "Messages in flight"),
        ("messages.bytes", "Data sent (bytes)"),
        ("neighbourhood.byzantine_fraction.4", "Share of Byzantine neighbours, client 4"),
        ("telemetry.age.-2", "Used messages of age -2"),
        ("telemetry.by_hops.2.mean_age", "Mean age of used messages (rounds), honest clients at distance 2"),
        ("telemetry.rounds.clean.num", "Number of rounds, honest clients without a Byzantine message"),
        ("theory.clients.12.loss", "Objective, client 12"),
        ("plugin.queue.bytes_per_s", "Plugin queue (bytes/s)"),
    ],
)
def test_labels_state_the_unit(path: str, label: str) -> None:
    assert metric_name(path).label == label
