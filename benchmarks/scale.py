"""Time and memory from 10 to 100,000 clients: `python benchmarks/scale.py [--sizes N...] [--plot FILE]`.

Softmax clients as in small_clients.py: 4-regular graph, R-DPFL with the median, one step of 32 per round,
records in memory; then 1,000 clients with the CNN of 122,570 parameters, one step of 32 per round. Each
size runs in its own process. Measured are the set-up (from the scenario to the first event), wall seconds
per round, and peak memory, most of which is torch itself at 10 clients. `--rounds-long` runs a small
scenario for 10,000 rounds and compares its memory with that after 1,000.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from table import Row, show

SIZES = (10, 100, 1_000, 10_000, 100_000)
HERE = Path(__file__).parent


def measure(num_clients: int, rounds: int, model: str, executor: str) -> dict[str, Any]:
    """Run once in this process; measure seconds of set-up and per round, and peak memory."""
    from small_clients import scenario

    from rdpfl_sim import Scenario, simulate
    from rdpfl_sim.simulation.experiment import Experiment

    plan = scenario(num_clients, rounds, executor=executor).to_dict()
    if model == "cnn":
        data = {"name": "synthetic", "shape": [3, 32, 32], "num_train": 32 * num_clients, "num_test": 1000}
        plan |= {"model": {"name": "cnn"}, "data": data}
    began = time.perf_counter()
    experiment = Experiment(Scenario.from_dict(plan))
    clock = Clock(began, num_clients)
    simulate(experiment, progress=clock)
    return {
        "clients": num_clients,
        "model": model,
        "rounds": rounds,
        "setup_s": clock.setup_s,
        "round_s": (clock.trained_s[-1] - clock.trained_s[0]) / (rounds - 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class Clock:
    """Measures when a run starts, and when all clients together have trained another round.

    The evaluation of the first and the last models, and the summary, are therefore not part of a round.
    """

    def __init__(self, began: float, num_clients: int) -> None:
        self.began, self.num_clients, self.setup_s = began, num_clients, 0.0
        self.trained_s: list[float] = []

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Record the time; the first call comes before the first event."""
        self.setup_s = self.setup_s or time.perf_counter() - self.began
        if rounds_done == self.num_clients * (len(self.trained_s) + 1):
            self.trained_s.append(time.perf_counter())


class MemoryLog:
    """Records the memory in use after some rounds."""

    def __init__(self, num_clients: int, rounds: tuple[int, ...]) -> None:
        self.due = {num_clients * round_: round_ for round_ in rounds}
        self.mb: dict[int, float] = {}

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Read the memory in use from /proc after the chosen rounds."""
        if rounds_done in self.due:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.mb[self.due[rounds_done]] = pages * resource.getpagesize() / 2**20


def measure_long(num_clients: int, rounds: tuple[int, int]) -> dict[str, Any]:
    """Measure the memory of a long run after some of its rounds and at its end; records go to a file."""
    import tempfile

    from rdpfl_sim import Scenario, simulate

    plan = {
        "rounds": rounds[1],
        "clients": {"count": num_clients},
        "data": {"name": "synthetic", "shape": [8], "num_train": 40 * num_clients, "num_test": 100},
        "partition": "iid",
        "model": "softmax",
        "network": {"latency": "exponential", "loss": {"name": "bernoulli", "probability": 0.1}},
        "timing": {"wait": {"name": "deadline", "seconds": 0.2}, "staleness": "keep"},
        "training": {"local_steps": 1, "batch_size": 16},
        "evaluation": {"every": 100, "global_test": False},
    }
    log = MemoryLog(num_clients, rounds)
    with tempfile.TemporaryDirectory() as folder:
        simulate(Scenario.from_dict(plan), folder, log)
    return {"clients": num_clients, "mb": [log.mb[round_] for round_ in rounds]}


def in_process(call: str) -> dict[str, Any]:
    """Evaluate a call of this module in its own process; return the result."""
    code = f"import json, scale; print(json.dumps(scale.{call}))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, cwd=HERE, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def sizes(numbers: tuple[int, ...] = SIZES, executor: str = "auto", cnn: bool = True) -> list[dict[str, Any]]:
    """Measure each size."""
    found = []
    for number in numbers:
        rounds = max(2, min(20, 20_000 // number))
        found.append(in_process(f"measure({number}, {rounds}, 'softmax', {executor!r})"))
    if cnn:
        found.append(in_process(f"measure(1000, 2, 'cnn', {executor!r})"))
    return found


def long_row() -> Row:
    """Measure whether memory grows with the number of rounds."""
    early, late = in_process("measure_long(5, (1000, 10000))")["mb"]
    work = "memory of 5 clients after 10,000 rounds, relative to that after 1,000"
    return Row(work, f"{late:.0f} MB", f"{early:.0f} MB", late / early, "<= 1.05")


def rows(numbers: tuple[int, ...] = SIZES, executor: str = "auto", plot: Path | None = None) -> list[Row]:
    """Measure every size, the CNN and the long run; draw a figure if `plot` is given."""
    found = sizes(numbers, executor)
    if plot is not None:
        draw(found, plot)
    table = []
    for size in found:
        work = f"{size['clients']:,} {size['model']} clients, 4-regular"
        largest = size["clients"] == 100_000
        set_up = f"set-up {size['setup_s']:.1f} s"
        must = ("<= 60", "<= 12") if largest else ("", "")
        table.append(
            Row(f"{work}: time per round", f"{size['round_s']:.3f} s", set_up, size["round_s"], must[0])
        )
        gib = size["peak_mb"] / 1024
        table.append(Row(f"{work}: peak memory", f"{gib:.2f} GiB", "", gib, must[1]))
    return [*table, long_row()]


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Plot seconds and memory over the number of clients, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [size for size in found if size["model"] == "softmax"]
    clients = [size["clients"] for size in found]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.loglog(clients, [size["round_s"] for size in found], "o-", label="per round")
    left.loglog(clients, [size["setup_s"] for size in found], "s-", label="set-up")
    last = found[-1]["round_s"] / clients[-1]
    left.loglog(clients, [last * n for n in clients], ":", color="grey", label="proportional to clients")
    right.loglog(clients, [size["peak_mb"] / 1024 for size in found], "o-")
    left.set(xlabel="clients", ylabel="seconds", title="Time")
    right.set(xlabel="clients", ylabel="GiB", title="Peak memory")
    left.legend()
    for axes in (left, right):
        axes.grid(visible=True, which="major", alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--plot", type=Path, default=None, metavar="FILE.png")
    parser.add_argument("--rounds-long", action="store_true", help="only measure the memory of a long run")
    options = parser.parse_args()
    if options.rounds_long:
        show([long_row()])
    else:
        show(rows(tuple(options.sizes), options.executor, options.plot))
