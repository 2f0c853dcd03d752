"""Every command, output and number of the README is checked."""

from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.intervals import LEVEL
from rdpfl_sim.maths.attacks import ATTACKS
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
SPEED = (ROOT / "docs" / "speed.md").read_text()
DEFAULT_LAMBDA = "0.01"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """All examples of the README, run in their order and as they are written."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("COLUMNS", "100")
        done = Session(tmp_path_factory.mktemp("readme"), monkeypatch, quick=False)
        done.start()
        done.run(README)
    return done


@pytest.mark.slow
def test_examples_run(session: Session) -> None:
    assert session.num_run >= 8
    assert [*session.folder.glob("runs/ring_30pct-*/report.html")]


@pytest.mark.slow
def test_sweep_and_plot_make_a_line_figure_as_png_and_pdf(session: Session) -> None:
    drawn = {path.suffix for path in session.folder.rglob("*") if "accuracy" in path.name}
    assert drawn >= {".png", ".pdf"}


@pytest.mark.slow
def test_shown_output_is_what_make_run_prints(session: Session) -> None:
    [shown] = [block.text for block in blocks(TEXT) if block.language == "text"]
    assert "digest" in shown
    lines = [line for line in shown.splitlines() if IS_PINNED or not line.startswith("digest")]
    assert missing_lines("\n".join(lines), session.printed[0]) == []


@pytest.mark.slow
def test_every_number_in_the_text_is_checked(session: Session) -> None:
    commands = "\n".join(block.text for block in blocks(TEXT) if block.language in ("sh", "toml"))
    scenario = (ROOT / "scenarios" / "ring_30pct.toml").read_text()
    texts = prose(TEXT)
    for checked in (f"with {len(METHODS) - 1} other methods", f"under {len(ATTACKS) - 1} attacks"):
        assert checked in texts
        texts = texts.replace(checked, "")
    for checked in ("Python 3.11", "100,000", f"λ = {DEFAULT_LAMBDA}", "95 %"):  # see the tests below
        assert checked in texts
        texts = texts.replace(checked, "")
    texts = texts.replace("10 %", "0.1")
    source = "\n".join([*session.printed, commands, scenario])
    assert missing_numbers([*numbers(texts), *number_words(texts)], source) == []


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
