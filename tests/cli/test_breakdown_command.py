"""Real runs in worker processes, few and small."""

import json
from pathlib import Path

import pytest

from rdpfl_sim.cli.main import main

SCENARIO = """
rounds = 3
clients = { count = 4 }
topology = "complete"
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 200 }
partition = "iid"
model = "softmax"
method = { name = "direct", lambda = 1.0 }
adversary = { fraction = 0.25, attack = { name = "sign_flip", scale = 50.0 } }
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.slow
def test_breakdown_is_found_and_drawn_and_repeating_the_command_continues_it(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["breakdown", str(scenario), "--vary", "adversary.fraction", "--seeds", "4,2", "--workers", "2"]
    command += ["--output", str(tmp_path / "out")]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    folder = tmp_path / "out" / "tiny-adversary.fraction"
    assert lines[0] == "tiny: adversary.fraction from 0 to 0.5 (3 values), seeds 4, 2"
    assert lines[-1] == str(folder)
    assert (folder / "breakdown.png").read_bytes().startswith(b"\x89PNG")
    answer = json.loads((folder / "breakdown.json").read_text())
    assert set(answer["seeds"]) == {"2", "4"}
    assert answer["seeds"]["2"] == {
        "holds_up_to": 0.0,
        "below_from": 0.25,
    }  # undefended, one Byzantine client is enough
    written = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/summary.json")}
    assert len(written) == 2 * (1 + 3)
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/summary.json")} == written


def test_mistakes_are_reported_before_the_first_run(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["breakdown", str(scenario), "--output", str(tmp_path / "out"), "--vary"]
    for words, message in (
        (["method.lamda"], "did you mean 'method.lambda'?"),
        (["adversary.fraction", "--to", "1"], "leaves no honest client"),
        (["network.loss.probability", "--set", "network.loss=bernoulli"], "could wait forever"),
    ):
        assert main([*command, *words]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_failures_are_printed_even_with_quiet(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = SCENARIO.replace('"complete"', '{ name = "file", path = "nowhere.csv" }')
    scenario.write_text(nowhere)
    command = ["breakdown", str(scenario), "--vary", "adversary.fraction", "--to", "0.25", "--seeds", "1,"]
    assert main([*command, "--workers", "1", "--output", str(tmp_path / "out"), "--quiet"]) == 1
    output, error = capsys.readouterr()
    assert output == f"{tmp_path / 'out' / 'tiny-adversary.fraction'}\n"
    failures = [line for line in error.splitlines() if "topology.path: cannot be read" in line]
    assert len(failures) == 3
    assert failures[0].startswith("failed: method = local, seed 1: ScenarioError")


@pytest.mark.parametrize(
    "words",
    [["--seeds", "0"], ["--seeds", "1,1"], ["--seeds", "a"], ["--from", "nan"], ["--tolerance", "-1"]],
)
def test_invalid_options_are_rejected(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["breakdown", "any.toml", "--vary", "method.lambda", *words])
    assert f"error: argument {words[0]}" in capsys.readouterr().err
