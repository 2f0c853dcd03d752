"""Completion tested with real shells; zsh and fish only where they are installed."""

import io
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from rdpfl_sim.cli.main import COMMANDS, main
from rdpfl_sim.scenario.bundled import bundled_scenarios
from rdpfl_sim.scenario.sections import CHOICES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, two scenarios, a run folder and other files."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        with redirect_stdout(io.StringIO()) as script:
            assert main(["completion", shell]) == 0
        (folder / f"script.{shell}").write_text(script.getvalue())
    (folder / "some scenarios").mkdir()
    (folder / "runs" / "ring-1").mkdir(parents=True)
    for name in ("mine.toml", "main.toml", "mine.csv"):
        (folder / name).touch()
    return folder


def completed(folder: Path, shell: str, line: str) -> set[str]:
    """Return the completions that a shell offers for the last word of a line."""
    if shell == "bash":
        words = shlex.split(line.removesuffix(" ")) + ([""] if line.endswith(" ") else [])
        quoted = " ".join(map(shlex.quote, words))
        program = (
            f"source ./script.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_rdpfl_sim; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "--norc", "-c", program]
    else:
        command = ["fish", "-N", "-c", f"source ./script.fish; complete -C {shlex.quote(line)}"]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert output.stderr == ""
    return {text.split("\t")[0].removesuffix("/") for text in output.stdout.splitlines() if text}


@pytest.fixture(params=["bash", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_first_word_is_a_command_a_scenario_or_a_folder(folder: Path, shell: str) -> None:
    offered = completed(folder, shell, "rdpfl-sim ")
    assert offered >= {*COMMANDS, "mine.toml", "main.toml", "runs", "some scenarios", "ring_30pct"}
    assert offered <= {*COMMANDS, *bundled_scenarios(), "mine.toml", "main.toml", "runs", "some scenarios"}
    assert "rivals" not in offered  # a sweep
    assert completed(folder, shell, "rdpfl-sim val") == {"validate"}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rdpfl-sim list att", {"attack", "attack_schedule"}),
        ("rdpfl-sim run m", {"mine.toml", "main.toml"}),
        ("rdpfl-sim run ring", {"ring_30pct"}),
        ("rdpfl-sim ring", {"ring_30pct"}),
        ("rdpfl-sim breakdown stress/late", {"stress/late_join"}),
        ("rdpfl-sim run ri", {"ring_30pct"}),
        ("rdpfl-sim sweep ri", {"rivals"}),
        ("rdpfl-sim validate ri", {"ring_30pct", "rivals"}),
        ("rdpfl-sim mine.toml --se", {"--set", "--seed"}),
        ("rdpfl-sim show runs/", {"runs/ring-1"}),
        ("rdpfl-sim verify runs/ring-1 ru", {"runs"}),
        ("rdpfl-sim sweep mine.toml --engine ", {"processes", "ray"}),
        ("rdpfl-sim data ", {"cifar10", "cifar100", "mnist", "fashion_mnist"}),
        ("rdpfl-sim new --topology s", {"small_world", "scale_free", "star"}),
        ("rdpfl-sim completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_completion_offers_the_expected_words(folder: Path, shell: str, line: str, offered: set[str]) -> None:
    assert completed(folder, shell, line) == offered


def test_all_kinds_of_list_are_offered(folder: Path) -> None:
    assert completed(folder, "bash", "rdpfl-sim list ") >= set(CHOICES)


def test_zsh_can_parse_its_script(folder: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    subprocess.run(["zsh", "-n", folder / "script.zsh"], check=True)
