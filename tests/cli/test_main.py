import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdpfl_sim.cli.main import main
from rdpfl_sim.scenario.sections import CHOICES

SMALL = """
rounds = 3
clients = { count = 4 }
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }
partition = "iid"
model = "softmax"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SMALL)
    return path


def test_run_ends_with_a_table_figures_and_the_folder(scenario: Path, tmp_path: Path, capsys) -> None:
    assert main([str(scenario), "--output", str(tmp_path / "runs")]) == 0
    output, progress = capsys.readouterr()
    folder = Path(output.splitlines()[-1])
    assert "100%  12 of 12 client rounds" in progress
    assert "personal mean" in output
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "topology.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "summary.json").read_text())["digest"][:16] in output


def test_quiet_prints_only_the_folder(scenario: Path, tmp_path: Path, capsys) -> None:
    assert main(["run", str(scenario), "--quiet", "--output", str(tmp_path / "runs")]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert Path(line).is_dir()


def test_overrides_and_seed_reach_the_run(scenario: Path, tmp_path: Path, capsys) -> None:
    overrides = ["--set", "method.name=direct", "--set", "method.lambda=0.2", "--seed", "9"]
    assert main([str(scenario), "-q", "--output", str(tmp_path), *overrides]) == 0
    summary = json.loads((Path(capsys.readouterr().out.strip()) / "summary.json").read_text())
    assert (summary["seed"], summary["method"]) == (9, "direct (mean), lambda 0.2")


def test_validate_lists_every_problem_exits_with_2_and_writes_nothing(
    scenario: Path, tmp_path: Path, capsys
) -> None:
    before = set(tmp_path.iterdir())
    wrong = ["--set", "rounds=0", "--set", "topology=rign", "--set", "network.loss=bernoulli"]
    assert main(["validate", str(scenario), *wrong]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "3 problems" in error
    assert "rounds: must be >= 1 (given: 0)" in error
    assert "did you mean 'ring'?" in error
    assert "timing.wait: 'all' without timeout_s could wait forever" in error
    assert set(tmp_path.iterdir()) == before


def test_running_a_wrong_scenario_writes_nothing(scenario: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / "runs"
    assert main([str(scenario), "--output", str(output), "--set", "topology={name='k_regular', k=9}"]) == 2
    assert "topology.k" in capsys.readouterr().err
    assert not output.exists()


def test_output_folder_that_is_given_twice_is_rejected(scenario: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / "runs"
    assert main([str(scenario), "--output", str(output), "--set", "output.folder='elsewhere'"]) == 2
    assert "output.folder: has no effect: --output replaces it" in capsys.readouterr().err
    assert not output.exists()


def test_unusable_output_folder_is_explained(scenario: Path, capsys) -> None:
    assert main([str(scenario), "--output", str(scenario / "below_a_file")]) == 2
    assert "output.folder: cannot create a run folder" in capsys.readouterr().err


def test_valid_scenario_is_reported_as_valid(scenario: Path, capsys) -> None:
    assert main(["validate", str(scenario)]) == 0
    assert capsys.readouterr().out == f"{scenario}: valid\n"


def test_schema_is_json_schema(capsys) -> None:
    assert main(["schema"]) == 0
    assert "adversary" in json.loads(capsys.readouterr().out)["properties"]


def test_list_shows_options_and_accepts_plurals(capsys) -> None:
    assert main(["list", "attacks"]) == 0
    output = capsys.readouterr().out
    assert "min_max" in output
    assert "sigma = 200.0  # >= 0" in output
    assert main(["list", "atack"]) == 2
    assert "did you mean 'attack'?" in capsys.readouterr().err


def test_list_finds_components_by_name(capsys) -> None:
    assert main(["list", "synthetic"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("data\n  synthetic: One Gaussian cloud per class")
    assert "num_train = 2000" in output
    assert "digits" not in output
    assert main(["list", "constant"]) == 0
    assert re.findall(r"^\w+$", capsys.readouterr().out, flags=re.MULTILINE) == [
        "learning_rate_schedule",
        "attack",
        "latency",
        "compute",
    ]
    assert main(["list", "syntetic"]) == 2
    assert "the name of a component" in capsys.readouterr().err


def test_help_does_not_load_torch() -> None:
    program = (
        "import sys; from rdpfl_sim.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines()[-1] == "False"
    assert "examples:" in output


@pytest.mark.slow
def test_bar_is_drawn_on_a_terminal(scenario: Path, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "rdpfl_sim",
        str(scenario),
        "--output",
        str(tmp_path),
        "--set",
        "rounds=30",
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # the other side of the terminal is closed
                break
            if not chunk:
                break
            output += chunk
    os.close(controller)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())
    assert "120/120 rounds" in text
    assert "accuracy" in text


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_writes_a_summary_and_exits_with_130(scenario: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "rdpfl_sim",
        str(scenario),
        "--output",
        str(tmp_path),
        "--set",
        "rounds=1000000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "rounds" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, messages = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in output
    folder = Path(output.splitlines()[-1])
    assert f"resume with: rdpfl-sim resume {folder}" in messages
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"


def test_unknown_data_set_is_rejected_with_the_allowed_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["data", "imagenet", "--folder", str(tmp_path)]) == 2
    assert "allowed: cifar10, cifar100, mnist, fashion_mnist" in capsys.readouterr().err


def test_missing_data_set_is_a_problem_with_the_command_that_downloads_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[data]\nname = "mnist"\nfolder = "{tmp_path}"\n')
    assert main(["validate", str(path)]) == 2
    assert "rdpfl-sim data mnist" in capsys.readouterr().err


SWEEP = """
base = { rounds = 3, clients.count = 4 }
grid = { "method.lambda" = [0.1, 1.0] }
profiles.quick.set = { rounds = 1 }
"""


def test_override_that_an_axis_replaces_is_rejected_by_sweep_and_validate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "many.toml"
    path.write_text(SWEEP)
    for command in (["validate", str(path)], ["sweep", str(path), "--output", str(tmp_path / "sweeps")]):
        assert main([*command, "--set", "method.lambda=3"]) == 2
        assert "method.lambda: has no effect: axis 'method.lambda'" in capsys.readouterr().err
        assert main([*command, "--set", "method.lamda=3"]) == 2
        assert "method.lamda: unknown key; did you mean 'lambda'?" in capsys.readouterr().err
    assert not (tmp_path / "sweeps").exists()


def test_validation_of_a_sweep_names_the_profiles_that_replace_an_override(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "many.toml"
    path.write_text(SWEEP)
    assert main(["validate", str(path), "--set", "rounds=2"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "without a profile: 2 runs",
        "profile quick: cannot be combined with --set rounds, which the profile replaces",
    ]
    assert main(["validate", str(path), "--seed", "3"]) == 2
    assert "--seed: has no effect: a sweep has its own seeds" in capsys.readouterr().err


def test_override_of_the_varied_path_is_rejected(capsys: pytest.CaptureFixture[str], scenario: Path) -> None:
    words = ["--vary", "method.lambda", "--from", "0.1", "--to", "1", "--set", "method.lambda=3"]
    assert main(["breakdown", str(scenario), *words]) == 2
    assert "method.lambda: has no effect: --vary replaces it" in capsys.readouterr().err


def test_sweep_needs_a_worker(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sweep", "any.toml", "--workers", "0"])
    assert "must be a whole number from 1 to 9999, not '0'" in capsys.readouterr().err


def test_list_in_a_pipe_has_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attack"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) < 300


def test_list_shows_names_and_list_all_shows_every_detail(capsys) -> None:
    assert main(["list"]) == 0
    names = capsys.readouterr().out
    assert f"{'wait':24}all, quorum, deadline, none\n" in names
    assert main(["list", "all"]) == 0
    everything = capsys.readouterr().out
    assert f"  deadline: {CHOICES['wait'].table('deadline').__doc__}\n" in everything
    assert len(everything.splitlines()) > 5 * len(names.splitlines())


def test_lines_in_a_pipe_have_no_trailing_spaces(scenario: Path, tmp_path: Path, capsys) -> None:
    assert main([str(scenario), "--output", str(tmp_path), "--set", "output.figures=false"]) == 0
    assert main(["show", capsys.readouterr().out.splitlines()[-1]]) == 0
    assert main(["validate", str(scenario), "--set", "rounds=0", "--set", "seed=-1"]) == 2
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert [line for line in text.splitlines() if line.endswith(" ")] == []


def test_closed_pipe_is_not_an_error() -> None:
    command = [sys.executable, "-m", "rdpfl_sim", "list", "all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["any.toml", "--sed", "3"], "rdpfl-sim run: error: unknown argument --sed 3; did you mean --seed?"),
        (["show", "runs/any", "more"], "rdpfl-sim show: error: unknown argument more\n"),
    ],
)
def test_unknown_argument_is_rejected_by_its_command(words: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err
