"""Reading results needs no torch, which takes seconds to import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from tests.support import small_scenario

COMMANDS = {
    "compare": ["{sweep}"],
    "plot": ["{sweep}", "--x", "rounds", "--y", "messages.sent"],
    "report": ["{sweep}", "{run}"],
    "show": ["{run}"],
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a sweep of two numbers of rounds; return its folder."""
    folder = tmp_path_factory.mktemp("sweep")
    runs = []
    for rounds in (1, 2):
        done = simulate(small_scenario(rounds=rounds), folder / "runs").folder
        assert done is not None
        runs.append({"folder": f"runs/{done.name}", "labels": {"rounds": str(rounds)}})
    axes = [{"name": "rounds", "labels": ["1", "2"]}]
    plan = {"name": "mine", "axes": axes, "words": {"rounds": "Rounds"}, "runs": runs, "tables": []}
    (folder / "sweep.json").write_text(json.dumps(plan))
    return folder


def loads_torch(program: str, *arguments: str) -> bool:
    code = f"import sys; {program}; print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1] == "True"


def test_results_are_imported_without_torch() -> None:
    modules = ("run", "sweep", "compare", "tables", "charts")
    assert not loads_torch(f"from rdpfl_sim.results import {', '.join(modules)}")
    assert loads_torch("from rdpfl_sim.scenario import scenario")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_read_import_no_torch(command: str, sweep: Path) -> None:
    run = min((sweep / "runs").iterdir())
    arguments = [word.format(sweep=sweep, run=run) for word in COMMANDS[command]]
    program = "from rdpfl_sim.cli.main import main; assert main(sys.argv[1:]) == 0"
    assert not loads_torch(program, command, *arguments)
