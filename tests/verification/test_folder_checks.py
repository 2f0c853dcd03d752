"""Changed scenario and topology."""

from pathlib import Path

import pytest

from rdpfl_sim.errors import RunError
from rdpfl_sim.verification.verify import verify
from tests.verification.changed_runs import change_json, violated


def test_changed_scenario_is_reported(run: Path) -> None:
    path = run / "scenario.toml"
    text = path.read_text()
    path.write_text(text.replace("learning_rate = 0.01", "learning_rate = 0.02"))
    assert path.read_text() != text
    assert list(violated(run)) == ["scenario"]


@pytest.mark.parametrize(
    "change",
    [{"byzantine": [5, 99]}, {"edges": [[0, 6]]}, {"edges": [[0]]}, {"edges": 1}, {"num_clients": 5}],
)
def test_topology_with_unknown_clients_is_damaged(run: Path, change: dict[str, object]) -> None:
    change_json(run / "topology.json", lambda topology: topology.update(change))
    with pytest.raises(RunError, match=r"topology\.json is damaged"):
        verify(run)


def test_other_byzantine_clients_than_those_of_the_first_record_are_reported(run: Path) -> None:
    change_json(run / "topology.json", lambda topology: topology.update(byzantine=[4]))
    assert violated(run)["scenario"].first == "the Byzantine clients are [5], in topology.json [4]"
