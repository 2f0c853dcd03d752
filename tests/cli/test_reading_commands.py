"""Commands that only read records start quickly: they do not import torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from tests.support import small_scenario

PROGRAM = """
import json, sys
import rdpfl_sim.results
from rdpfl_sim.cli.main import main

assert "torch" not in sys.modules, "import rdpfl_sim.results"
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
    assert "torch" not in sys.modules, words
"""


@pytest.mark.slow
def test_reading_commands_do_not_import_torch(tmp_path: Path) -> None:
    sweep = tmp_path / "loss"
    runs = []
    for probability in (0.0, 0.5):
        for seed in (1, 2):
            loss = {"name": "bernoulli", "probability": probability}
            network, timing = {"loss": loss}, {"wait": "none"}
            scenario = small_scenario(rounds=1, seed=seed, network=network, timing=timing)
            folder = simulate(scenario, sweep / "runs").folder
            assert folder is not None
            labels = {"network.loss.probability": str(probability)}
            runs.append({"folder": f"runs/{folder.name}", "labels": labels})
    axes = [{"name": "network.loss.probability", "labels": ["0.0", "0.5"]}]
    words = {"network.loss.probability": "Probability that a message is lost"}
    plan = {"name": "loss", "axes": axes, "words": words, "runs": runs}
    (sweep / "sweep.json").write_text(json.dumps(plan))
    run = sweep / runs[0]["folder"]
    commands = [
        ["list", "scenarios"],
        ["show", run],
        ["watch", run],
        ["trace", run],
        ["compare", sweep / "runs"],
        ["compare", sweep],
        ["plot", sweep, "--x", "network.loss.probability"],
        ["report", run],
        ["report", sweep],
    ]
    arguments = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run([sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
