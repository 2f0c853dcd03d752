"""Every command, output and number of the README is checked."""

from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.cli.main import main
from rdpfl_sim.intervals import LEVEL
from rdpfl_sim.methods import METHODS
from tests.docs.pages import (
    IS_PINNED,
    README,
    ROOT,
    Session,
    blocks,
    missing_lines,
    missing_numbers,
    number_words,
    numbers,
    prose,
)
from tests.packages import Packages
from tests.support import small_scenario

TEXT = README.read_text()
SPEED = (ROOT / "docs" / "scale" / "speed.md").read_text()
DEFAULT_LAMBDA = "0.01"
COUNTS = (f"with {len(METHODS) - 1} other methods", f"under {len(ATTACKS) - 1} attacks")  # not "none"


@pytest.mark.slow
@pytest.mark.timeout(900)  # a sweep of 40 runs
def test_examples_run_and_print_every_output_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    session = Session(tmp_path, monkeypatch, quick=False)
    session.start()
    session.run(README)  # compares the shown output, too
    assert session.num_run >= 8
    assert missing_lines(shown_table(), session.printed[0]) == []
    assert [*tmp_path.glob("runs/ring_30pct-*/report.html")]
    drawn = {path.suffix for path in tmp_path.rglob("*") if "accuracy" in path.name}
    assert drawn >= {".png", ".pdf"}
    commands = "\n".join(block.text for block in blocks(TEXT) if block.language in ("sh", "toml"))
    scenario = (ROOT / "scenarios" / "ring_30pct.toml").read_text()
    text = text_without_numbers_of_the_code()
    source = "\n".join([*session.printed, commands, scenario])
    assert missing_numbers([*numbers(text), *number_words(text)], source) == []


def shown_table() -> str:
    """Return the output of `make run` in the README; the digest only if it is pinned."""
    [shown] = [block.text for block in blocks(TEXT) if block.language == "text"]
    assert "digest" in shown
    return "\n".join(line for line in shown.splitlines() if IS_PINNED or not line.startswith("digest"))


def text_without_numbers_of_the_code() -> str:
    """Return the running text without the numbers that the tests below check."""
    text = prose(TEXT).replace("10 %", "0.1")
    for checked in (*COUNTS, "Python 3.11", "100,000", f"λ = {DEFAULT_LAMBDA}", "95 %"):
        assert checked in text
        text = text.replace(checked, "")
    return text


def test_readme_installs_without_make_and_compares_with_local_training() -> None:
    assert "pip install .`" in TEXT
    commands = "\n".join(block.text for block in blocks(TEXT) if block.language == "sh")
    assert "--set method=local\n" in commands
    assert "--baseline method.name=local\n" in commands


def test_counts_in_the_text_are_those_of_the_registries() -> None:
    assert [count for count in COUNTS if count not in prose(TEXT)] == []


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
    assert Scenario.from_dict({"method": "rdpfl"}).to_dict()["method"]["lambda"] == float(DEFAULT_LAMBDA)
    assert LEVEL == 0.95


def test_a_large_run_reaches_its_targets() -> None:
    rows = [line for line in SPEED.splitlines() if line.startswith("| 100,000 softmax clients")]
    assert len(rows) == 2
    assert all(row.endswith("| yes |") for row in rows)


def test_scenario_runs(tmp_path: Path) -> None:
    [scenario] = [block.text for block in blocks(TEXT) if block.language == "toml" and not block.title]
    (tmp_path / "mine.toml").write_text(scenario)
    assert main([str(tmp_path / "mine.toml"), "-q", "--output", str(tmp_path), "--set", "rounds=2"]) == 0


def test_attack_runs(packages: Packages) -> None:
    [code] = [block.text for block in blocks(TEXT) if block.language == "python"]
    packages.install("reversing", code, {"attack": ["reverse_mean"]})
    adversary = {"fraction": 0.3, "attack": {"name": "reverse_mean", "strength": 3.0}}
    result = simulate(small_scenario(rounds=2, adversary=adversary))
    assert result.summary["attack"] == "reverse_mean (strength 3)"
