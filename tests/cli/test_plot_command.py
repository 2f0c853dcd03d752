"""Draw figures of a sweep from the command line."""

from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.sweeps.plan import write_plan
from rdpfl_sim.sweeps.runner import folder_of
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.support import small_scenario


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two probabilities of loss and two seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    base = small_scenario(rounds=2, network={"loss": "bernoulli"}, timing={"wait": "none"}).to_dict()
    spec = SweepSpec.from_dict(
        {
            "name": "loss",
            "base": {key: value for key, value in base.items() if key not in ("name", "seed", "notes")},
            "seeds": [1, 2],
            "grid": {"network.loss.probability": [0.0, 0.5], "method.name": ["local", "rdpfl"]},
        }
    )
    runs = plan_runs(spec)
    write_plan(folder / "loss", spec, "loss", runs)
    for run in runs:
        done = simulate(run.scenario, folder / "scratch").folder
        assert done is not None
        target = folder_of(run, folder / "loss")
        target.parent.mkdir(exist_ok=True)
        done.rename(target)
    return folder / "loss"


def plot(*words: object) -> int:
    return main(["plot", *map(str, words)])


def test_plot_writes_png_and_pdf_and_prints_their_paths(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plot(sweep, "--x", "network.loss.probability", "--by", "method", "-o", tmp_path / "figure") == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"{tmp_path}/figure.png", f"{tmp_path}/figure.pdf"]
    assert "means over 2 seeds; 95 % intervals (Student's t)" in printed.err
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "figure.pdf").read_bytes()[:4] == b"%PDF"


def test_the_default_file_is_in_the_sweep_folder_and_states_its_content(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--x", "method.name", "--y", "simulated_s", "--where", "network.loss.probability=0.5"]
    assert plot(sweep, *words) == 0
    name = "simulated_s-method_name-network_loss_probability_0_5.png"
    assert capsys.readouterr().out.splitlines()[0] == str(sweep / name)
    assert (sweep / name).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--x", "network.loss.probability"], "average over other axes: method.name (local, rdpfl)"),
        (["--x", "loss"], "no axis, setting or number in summary.json has this name"),
        (
            ["--x", "method", "--y", "accuracy.honest.mean"],
            "numbers in the section accuracy: accuracy.honest.personal.mean",
        ),
        (["--x", "method", "--where", "method=locl"], "no run has this value; did you mean 'local'?"),
        (["--x", "method", "-o", "figure.svg"], "--output figure.svg: must end in .png or .pdf"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_nothing_is_written(
    sweep: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(sweep.iterdir())
    assert plot(sweep, *words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("rdpfl-sim plot: ")
    assert message in line
    assert sorted(sweep.iterdir()) == before


@pytest.mark.parametrize("width", ["3", "8", "wide", "nan"])
def test_width_must_fit_a_page(sweep: Path, width: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        plot(sweep, "--x", "method", "--width", width)
    assert end.value.code == 2
    assert f"must be from 3.4 to 7, not '{width}'" in capsys.readouterr().err


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(tmp_path, "--x", "method") == 2
    assert "it contains no runs" in capsys.readouterr().err
