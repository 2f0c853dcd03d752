from pathlib import Path

import pytest

from rdpfl_sim import Run, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.reports.tensorboard import read_series
from tests.records.lines import record_line
from tests.support import small_scenario


def line(event: str, time_s: float, client: int, round_: int, **numbers) -> bytes:
    return record_line(event, time_s, client=client, round=round_, **numbers)


def test_series_contain_round_time_and_value_of_every_client_and_the_honest_mean() -> None:
    lines = [
        line("round_finished", 1.0, 0, 1, max_age=None),
        line("estimate", 1.0, 0, 1, tau=2.0),
        line("round_finished", 1.25, 1, 1, num_used=2, max_age=1),
        line("round_finished", 1.25, 2, 1, max_age=0),
        line("estimate", 1.5, 1, 1, tau=4.0),
        line("estimate", 1.75, 2, 1, tau=100.0),
        line("round_finished", 2.0, 0, 2, max_age=None),
        line("estimate", 2.0, 0, 2, tau=3.0),
        line("evaluated", 2.0, 0, 2, trained_time_s=1.5, trained_personal_accuracy=0.5),
        line("evaluated", 2.0, 1, 2, updated_time_s=1.75, updated_validation_accuracy=0.75),
        record_line("consensus", 2.0, round=2, accuracy=0.25, distance=1.5),
        record_line("message_sent", 2.0, round=2, size_bytes=4),
    ]
    series = read_series(lines, {"num_clients": 3, "edges": [], "byzantine": [2]})
    assert {name: {tag: list(v) for tag, v in tags.items()} for name, tags in series.items()} == {
        "client-0-honest": {
            "round/num_used": [1, 1.0, 0.0, 2, 2.0, 0.0],
            "round/tau": [1, 1.0, 2.0, 2, 2.0, 3.0],
            "accuracy/personal/trained": [2, 1.5, 0.5],
        },
        "client-1-honest": {
            "round/num_used": [1, 1.25, 2.0],
            "round/tau": [1, 1.5, 4.0],
            "round/max_age": [1, 1.25, 1.0],
            "accuracy/validation/updated": [2, 1.75, 0.75],
        },
        "average-model": {"accuracy/global": [2, 2.0, 0.25], "consensus/distance": [2, 2.0, 1.5]},
        "client-2-byzantine": {
            "round/num_used": [1, 1.25, 0.0],
            "round/tau": [1, 1.75, 100.0],
            "round/max_age": [1, 1.25, 0.0],
        },
        "honest-mean": {
            "round/num_used": [1, 1.25, 1.0, 2, 2.0, 0.0],
            "round/tau": [1, 1.5, 3.0, 2, 2.0, 3.0],
            "round/max_age": [1, 1.25, 1.0],
            "accuracy/personal/trained": [2, 1.5, 0.5],
            "accuracy/validation/updated": [2, 1.75, 0.75],
        },
    }


def test_tensorboard_reads_back_what_was_evaluated(tmp_path: Path, capsys) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = simulate(small_scenario(), tmp_path / "runs")
    assert result.folder is not None
    for _ in range(2):  # the second time replaces the first
        assert main(["tensorboard", str(result.folder), "--output", str(tmp_path / "board")]) == 0
    assert "tensorboard --logdir" in capsys.readouterr().err
    folder = tmp_path / "board" / result.folder.name
    assert {path.name for path in folder.iterdir()} == {
        "honest-mean",
        *(f"client-{i}-honest" for i in range(6)),
    }
    read = EventAccumulator(str(folder / "client-3-honest")).Reload()
    assert result.folder is not None
    for moment in ("trained", "updated"):
        values = [(e.step, e.wall_time, e.value) for e in read.Scalars(f"accuracy/personal/{moment}")]
        rows = Run(result.folder).evaluations(moment).filter(client=3)
        expected = rows.select("round", "time_s", "personal_accuracy").rows()
        assert values == [pytest.approx(row) for row in expected]
    assert "round/tau" in read.Tags()["scalars"]


def test_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("rdpfl_sim.cli.tensorboard.find_spec", lambda name: None)
    assert main(["tensorboard", str(tmp_path)]) == 1
    assert "pip install 'rdpfl-sim[tensorboard]'" in capsys.readouterr().err
