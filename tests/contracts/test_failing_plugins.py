"""A plug-in that fails during a run or on the command line causes one message and no loss of records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import PluginError
from rdpfl_sim.simulation.resume import resume
from tests.contracts.using import HEAD, METHOD, using
from tests.packages import Packages
from tests.support import small_scenario

LATE = {
    "aggregator": (
        "@aggregator\ndef odd(u):\n    return u.mean(dim=0) if counted(20) else u.mean()",
        "the aggregator 'odd' from the package odds 1.0 returns a tensor of shape [], not [27], in ",
    ),
    "attack": (
        "@attack\n"
        "def odd(view):\n    if view.round == 4:\n        raise ValueError('boom')\n    return view.own",
        "the attack 'odd' from the package odds 1.0 raises ValueError: boom (odds.py, line ",
    ),
    "model": (
        "class Tired(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        assert not torch.is_grad_enabled() or counted(20)\n"
        "        return super().forward(x)\n"
        "@model\ndef odd(shape, num_classes): return Tired(8, 3)",
        "the model 'odd' from the package odds 1.0 raises AssertionError (odds.py, line ",
    ),
    "method": (
        f"{METHOD}    def update(self, state, trained, inbox, clients):\n"
        "        assert clients[0].round < 3\n        return super().update(state, trained, inbox, clients)",
        "the method 'odd' from the package odds 1.0 raises AssertionError (odds.py, line ",
    ),
    "latency": (
        "@latency\ndef odd(u):\n    return 0.1 if counted(40) else -1.0",
        "the latency 'odd' from the package odds 1.0 returns -1.0 as seconds; it must be finite and at",
    ),
}
COUNTED = """
def counted(num):
    return next(counter) < num
"""


@pytest.mark.parametrize("kind", LATE)
def test_failure_during_a_run_is_reported_and_no_records_are_lost(
    packages: Packages, tmp_path: Path, kind: str
) -> None:
    source, sentence = LATE[kind]
    packages.install("odds", f"{HEAD}{COUNTED}{source}\n", {kind: ["odd"]})
    scenario = small_scenario(**using(kind), checkpoint={"every_rounds": 1})
    with pytest.raises(PluginError) as caught:
        simulate(scenario, tmp_path / "runs")
    [folder] = (tmp_path / "runs").iterdir()
    assert str(caught.value).startswith(sentence)
    assert re.search(r", in round [1-4] of client [0-5]; see ", str(caught.value))
    assert str(caught.value).endswith(f"; see {folder / 'traceback.txt'}")
    summary = orjson.loads((folder / "summary.json").read_bytes())
    assert summary == {"schema": 2, "status": "failed", "error": str(caught.value)}
    assert "Traceback (most recent call last)" in (folder / "traceback.txt").read_text()
    assert (folder / "events.jsonl").stat().st_size > 0
    assert list((folder / "checkpoints").iterdir())


def test_run_that_failed_is_resumed_with_the_repaired_package(packages: Packages, tmp_path: Path) -> None:
    source, _ = LATE["attack"]
    packages.install("odds", f"{HEAD}{source}\n", {"attack": ["odd"]})
    scenario = small_scenario(**using("attack"), checkpoint={"every_rounds": 1})
    with pytest.raises(PluginError):
        simulate(scenario, tmp_path / "runs")
    [folder] = (tmp_path / "runs").iterdir()
    packages.forget()
    (packages.folder / "odds.py").write_text(f"{HEAD}@attack\ndef odd(view): return view.own\n")
    resumed = resume(folder)
    assert resumed.summary["digest"] == simulate(small_scenario(**using("attack"))).summary["digest"]
    assert not (folder / "traceback.txt").exists()


# On the command line.

SCENARIO = """
rounds = 2
clients.count = 4
model = "softmax"
topology = "complete"
data = {name = "synthetic", shape = [8], num_classes = 3, num_train = 300, num_test = 60}
output.figures = false
"""


def command(packages: Packages, *words: str) -> subprocess.CompletedProcess[str]:
    """Run rdpfl-sim in a separate process with the packages on its path."""
    path = os.pathsep.join([str(packages.folder), os.getcwd()])
    return subprocess.run(
        [sys.executable, "-m", "rdpfl_sim", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_one_broken_package_breaks_neither_the_list_nor_other_runs(
    packages: Packages, tmp_path: Path
) -> None:
    packages.install("gone", "import missing_module", {"attack": ["lost"]})
    packages.install("flat", f"{HEAD}@aggregator\ndef flat(u): return u.mean()", {"aggregator": ["flat"]})
    packages.install("good", f"{HEAD}@attack\ndef kept(view): return view.own", {"attack": ["kept"]})
    scenario = tmp_path / "quick.toml"
    scenario.write_text(SCENARIO)
    listed = command(packages, "list")
    assert listed.returncode == 0, listed.stderr
    lines, warnings = listed.stdout.splitlines(), listed.stderr.splitlines()
    assert (
        "broken plug-in: the attack 'lost' from the package gone 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'missing_module' (gone.py, line 1)"
    ) in warnings
    flaw = "the aggregator 'flat' from the package flat 1.0 returns a tensor of shape [], not [6]"
    assert f"broken plug-in: {flaw}" in warnings
    [attacks] = (line for line in lines if line.startswith("attack "))
    assert attacks.endswith(", kept")
    ran = command(
        packages,
        *("run", str(scenario), "-q", "--output", str(tmp_path / "runs")),
        *("--set", "adversary={attack = 'kept', fraction = 0.25}"),
    )
    assert ran.returncode == 0, ran.stderr
    assert orjson.loads((Path(ran.stdout.strip()) / "summary.json").read_bytes())["status"] == "finished"
    refused = command(
        packages, "run", str(scenario), "--set", "method={name = 'direct', aggregator = 'flat'}"
    )
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"{scenario} cannot be run: 1 problem",
        f"  - method.aggregator: {flaw}",
    ]


def test_failure_in_a_run_ends_the_command_with_one_sentence(
    packages: Packages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = LATE["aggregator"]
    packages.install("odds", f"{HEAD}{COUNTED}{source}\n", {"aggregator": ["odd"]})
    scenario = tmp_path / "quick.toml"
    scenario.write_text(SCENARIO.replace("rounds = 2", "rounds = 9"))
    words = [str(scenario), "-q", "--output", str(tmp_path / "runs")]
    assert main([*words, "--set", "method={name = 'direct', aggregator = 'odd'}"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("rdpfl-sim run: the aggregator 'odd' from the package odds 1.0 returns a tensor")


@pytest.mark.parametrize(
    "words", [["schema"], ["completion", "bash"], ["list", "attack"], ["list", "--markdown"]]
)
def test_broken_package_does_not_affect_a_command(
    packages: Packages, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    packages.install("gone", "import missing_module", {"attack": ["lost"]})
    assert main(words) == 0
    assert "sign_flip" in capsys.readouterr().out
