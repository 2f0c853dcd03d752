from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from tests.support import small_scenario


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("local", "direct", "rdpfl"):
        for seed in (1, 2):
            simulate(small_scenario(rounds=2, seed=seed, method=method, name=method), folder / method)
    return folder


def test_two_groups_are_printed_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "local"), str(runs / "rdpfl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A  local, seeds 1, 2 (baseline)"
    table = {line.split()[0]: line.split() for line in lines if line}
    assert table["method.name"] == ["method.name", "local", "rdpfl"]
    assert table["metric"] == ["metric", "A", "B", "B", "-", "A"]
    sent = 2 * 6 * 2  # rounds, clients, neighbours
    assert table["messages.sent"] == ["messages.sent", "0", f"{sent}", f"+{sent}", "±", "0"]
    assert "over 2 pairs with equal seeds" in lines[-2]
    assert lines[-1] == "Accuracies are measured after local training."
    assert max(map(len, lines[:-2])) <= 80


def test_three_groups_are_printed_below_each_other(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(runs / name) for name in ("local", "direct", "rdpfl")]
    assert main(["compare", *folders, "--baseline", "method.name=rdpfl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "C  rdpfl, seeds 1, 2 (baseline)"
    start = next(place for place, line in enumerate(lines) if line.startswith("messages.sent"))
    assert [line.split() for line in lines[start : start + 3]] == [
        ["messages.sent", "C", "24"],
        ["A", "0", "-24", "±", "0"],
        ["B", "24", "+0", "±", "0"],
    ]


def test_two_single_runs_have_a_difference_without_an_interval(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = [str(min((runs / name).iterdir())) for name in ("local", "rdpfl")]
    assert main(["compare", *single, "--metric", "num_parameters"]) == 0
    output = capsys.readouterr().out
    assert f"A  local, seed 1 in {single[0]} (baseline)" in output
    assert "num_parameters" in output
    assert "±" not in output
    assert "no interval" in output


def test_markdown_has_the_same_numbers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "local"), str(runs / "rdpfl"), "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| metric | A | B | B - A |" in lines
    assert "| --- | ---: | ---: | ---: |" in lines
    assert "| messages.sent | 0 | 24 | +24 ± 0 |" in lines


def test_mistakes_are_reported_in_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs)]) == 2
    assert capsys.readouterr().err.startswith(f"rdpfl-sim compare: {runs} is not a run folder")
    assert main(["compare", str(runs / "local")]) == 2
    assert "there is nothing to compare" in capsys.readouterr().err
