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
from rdpfl_sim.aggregators.aggregator import FixedSeed
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import PluginError
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.simulation.resume import resume
from tests.packages import Packages
from tests.support import small_scenario
from tests.using_plugins import HEAD, METHOD, using

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
    assert summary == {"schema": SCHEMA, "status": "failed", "error": str(caught.value)}
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


LATE_WRITES = {
    "attack": "@attack\ndef odd(view):\n    if view.round == 2:\n        {write}\n    return -view.own",
    "equivocation": "@equivocation\n"
    "def odd(u, m, draw):\n    if not counted(6):\n        {write}\n    return m",
    "timing_attack": "@timing_attack(needs_past=True)\n"
    "def odd(view):\n    if view.round == 2:\n        {write}\n"
    "    return [ScheduledMessage(view.payload, view.round)]",
    "aggregator": "@aggregator\n"
    "def odd(u):\n    if not counted(20):\n        {write}\n    return u.mean(dim=0)",
    "pre_aggregator": "@pre_aggregator\n"
    "def odd(u):\n    if not counted(20):\n        {write}\n    return u / 2",
    "method": METHOD + "    def update(self, state, trained, inbox, clients):\n"
    "        if clients[0].round == 3:\n            {write}\n"
    "        return super().update(state, trained, inbox, clients)",
}
WRITES = [
    ("attack", "view.own.mul_(2)"),
    ("attack", "view.own.numpy()[:] = 0"),
    ("attack", "view.own.data[0] += 1"),
    ("equivocation", "u.add_(1)"),
    ("equivocation", "m.numpy()[0] += 1"),
    ("timing_attack", "view.payload.vector.numpy()[0] += 1"),
    ("timing_attack", "view.past[1].vector.zero_()"),
    ("aggregator", "u.mul_(2)"),
    ("aggregator", "u.numpy().sort(axis=0)"),
    ("pre_aggregator", "np.negative(u.numpy(), out=u.numpy())"),
    ("method", "state.w.add_(1)"),
    ("method", "trained.w.numpy()[0, 0] += 1"),
    ("method", "inbox.vectors[:] = 0"),
    ("method", "inbox.weights.numpy()[:] = 0"),
]
"""A kind of component, and a write to its inputs that does not occur while it is tested."""


@pytest.mark.parametrize(("kind", "write"), WRITES)
@pytest.mark.parametrize("executor", ["inline", "stacked"])
def test_write_to_an_input_ends_the_run(packages: Packages, kind: str, write: str, executor: str) -> None:
    source = LATE_WRITES[kind].format(write=write)
    packages.install("odds", f"{HEAD}{COUNTED}{source}\n", {kind: ["odd"]})
    with pytest.raises(PluginError) as caught:
        simulate(small_scenario(**using(kind), execution={"executor": executor}))
    name = f"the {kind.replace('_', ' ')} 'odd' from the package odds 1.0"
    sentence = f"{name} modifies its arguments; it must work on a copy, in round "
    assert str(caught.value).startswith(sentence)


MOMENTUM = """
@attack
def odd(view):
    if "m" in view.memory:
        {step}
    else:
        view.memory["m"] = view.own
    return view.memory["m"]
"""


def test_memory_shares_no_tensor_with_messages(packages: Packages) -> None:
    packages.install("odds", "", {"attack": ["odd"]})
    network = {"latency": {"name": "constant", "seconds": 1.5}}
    timing = {"wait": "none", "staleness": "keep"}

    def digest(step: str) -> str:
        packages.forget()
        (packages.folder / "odds.py").write_text(f"{HEAD}{MOMENTUM.format(step=step)}")
        return simulate(small_scenario(**using("attack"), network=network, timing=timing)).summary["digest"]

    in_place = "view.memory['m'].mul_(0.5).add_(view.own)"
    copied = "view.memory['m'] = view.memory['m'] * 0.5 + view.own"
    assert digest(in_place) == digest(copied)


EXITS = {
    "attack": ("view", "if view.round == 2: sys.exit(1)", "-view.own"),
    "aggregator": ("u", "counted(20) or sys.exit('bye')", "u.mean(dim=0)"),
    "latency": ("u", "counted(40) or exit()", "0.1"),
}


@pytest.mark.parametrize("executor", ["inline", "threads", "stacked"])
@pytest.mark.parametrize("kind", EXITS)
def test_exit_in_a_run_is_an_error_of_the_plugin(
    packages: Packages, tmp_path: Path, kind: str, executor: str
) -> None:
    parameter, statement, result = EXITS[kind]
    source = f"import sys\n@{kind}\ndef odd({parameter}):\n    {statement}\n    return {result}"
    packages.install("odds", f"{HEAD}{COUNTED}{source}\n", {kind: ["odd"]})
    with pytest.raises(
        PluginError, match=r"'odd' from the package odds 1.0 raises SystemExit.*odds.py, line"
    ):
        simulate(small_scenario(**using(kind), execution={"executor": executor}), tmp_path / "runs")
    [folder] = (tmp_path / "runs").iterdir()
    assert orjson.loads((folder / "summary.json").read_bytes())["status"] == "failed"


def test_exit_of_a_model_during_training_is_an_error_of_the_plugin(
    packages: Packages, tmp_path: Path
) -> None:
    source, _ = LATE["model"]
    source = source.replace("assert not", "if not (not").replace("counted(20)\n", "counted(20)): exit(0)\n")
    packages.install("odds", f"{HEAD}{COUNTED}{source}\n", {"model": ["odd"]})
    with pytest.raises(PluginError, match=r"the model 'odd' from the package odds 1.0 raises SystemExit: 0"):
        simulate(small_scenario(model="odd"), tmp_path / "runs")
    [folder] = (tmp_path / "runs").iterdir()
    assert orjson.loads((folder / "summary.json").read_bytes())["status"] == "failed"


RANDOM = {
    "attack": "@attack\ndef odd(view):\n"
    "    g = view.generator\n"
    "    return torch.randn(view.own.shape, generator=g) * torch.rand(1, generator=g)",
    "aggregator": "@aggregator(needs_generator=True)\ndef odd(u, generator):\n"
    "    return u[torch.randperm(len(u), generator=generator)[0]].clone()",
    "aggregator with own vector": "@aggregator(needs_own=True, needs_generator=True)\n"
    "def odd(u, own, generator):\n"
    "    return own if torch.rand(1, generator=generator) < 0.5 else u.mean(dim=0)",
    "aggregator of rows": "@aggregator(rows=True, needs_generator=True)\ndef odd(u, generators):\n"
    "    drawn = [one[int(torch.randint(len(one), (1,), generator=g))] for one, g in zip(u, generators)]\n"
    "    return torch.stack(drawn)",
    "aggregator by weights": "@weighting_aggregator(needs_generator=True)\ndef odd(u, generator):\n"
    "    weights = torch.rand(len(u), generator=generator, dtype=torch.float64)\n"
    "    return weights / weights.sum()",
    "pre_aggregator": "@pre_aggregator(needs_generator=True)\ndef odd(u, generator):\n"
    "    return u[torch.randperm(len(u), generator=generator)[: max(1, len(u) // 2)]]",
}


@pytest.mark.parametrize("case", RANDOM)
def test_draws_of_a_plugin_follow_from_the_seed_of_the_run(packages: Packages, case: str) -> None:
    kind = case.partition(" ")[0]
    packages.install("odds", f"{HEAD}{RANDOM[case]}\n", {kind: ["odd"]})

    def digest(**changes: object) -> str:
        scenario = small_scenario(**using(kind), topology="complete", **changes)
        return str(simulate(scenario).summary["digest"])

    assert digest() == digest() == digest(output={"telemetry": False})
    of_executors = {digest(execution={"executor": executor}) for executor in ("inline", "threads")}
    assert len(of_executors) == 1
    assert digest(seed=2) != digest()


def test_draws_of_an_aggregator_differ_between_clients_and_rounds(packages: Packages) -> None:
    source = """
from queue import SimpleQueue
seeds = SimpleQueue()
@aggregator(needs_generator=True)
def odd(u, generator):
    seeds.put(generator.initial_seed())
    return u.mean(dim=0)
"""
    packages.install("odds", f"{HEAD}{source}", {"aggregator": ["odd"]})
    scenario = small_scenario(**using("aggregator"))
    queue = sys.modules["odds"].seeds
    of_trial = {queue.get() for _ in range(queue.qsize())}
    simulate(scenario)
    seeds = [queue.get() for _ in range(queue.qsize())]
    seeds = [seed for seed in seeds if seed != FixedSeed().value]  # of the comparison with the mean
    assert len(seeds) == len({*seeds} - of_trial) == 4 * 6


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
