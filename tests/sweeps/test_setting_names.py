"""Words for the settings of a scenario."""

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.sweeps.plan import setting_name
from rdpfl_sim.toml import leaves


@pytest.mark.parametrize(
    ("path", "raw", "label"),
    [
        ("clients.count", {}, "Number of clients"),
        ("adversary.fraction", {"adversary": {"fraction": 0.2}}, "Fraction of Byzantine clients"),
        ("method.lambda", {}, "Weight of the neighbourhood direction λ"),
        (
            "method.aggregator.trim",
            {"method": {"aggregator": "trimmed_mean"}},
            "Fraction of messages removed from each end",
        ),
        (
            "network.loss.probability",
            {"network": {"loss": "bernoulli"}},
            "Probability that a message is lost",
        ),
        ("timing.wait.seconds", {"timing": {"wait": "deadline"}}, "Waiting time per round (s)"),
        (
            "network.bandwidth.bytes_per_s",
            {"network": {"bandwidth": "uplink"}},
            "Uplink of a client (bytes/s)",
        ),
        ("partition.alpha", {"partition": "dirichlet"}, "Partition α"),
        ("method.name", {}, "Method"),
        ("network.loss.name", {}, "Network loss"),
    ],
)
def test_label_is_the_description_or_the_path_in_words(path: str, raw: dict[str, object], label: str) -> None:
    scenario = Scenario.from_dict({"timing": {"wait": "none"}, **raw}).to_dict()
    assert setting_name(path, scenario).label == label


def test_every_setting_has_a_label_in_words() -> None:
    scenario = Scenario.from_dict({"adversary": {"fraction": 0.1, "attack": "noise"}}).to_dict()
    for path in leaves(scenario):
        label = setting_name(path, scenario).label
        assert label[0].isupper(), path
        assert ":" not in label, path
        assert "one of" not in label, path
