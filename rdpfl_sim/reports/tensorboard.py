"""The numbers of a run as series over rounds, and from there to TensorBoard."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from rdpfl_sim.errors import RunError
from rdpfl_sim.system.files import make_folder

EVALUATION = {
    "personal_accuracy": "accuracy/personal",
    "personal_loss": "loss/personal",
    "global_accuracy": "accuracy/global",
    "global_loss": "loss/global",
}
HONEST_MEAN = "honest-mean"
NO_NUMBERS = ("event", "time_s", "client", "round")

Series: TypeAlias = "dict[str, array[float]]"
"""By tag: round, simulated time and value, one after the other."""


def scalars(lines: Iterable[bytes], num_clients: int, byzantine: Iterable[int]) -> dict[str, Series]:
    """The series of every client, and the mean over the honest ones, each under a name of its own."""
    liars, width = frozenset(byzantine), len(str(num_clients - 1))
    found: dict[str, Series] = defaultdict(lambda: defaultdict(lambda: array("d")))
    sums: dict[str, dict[int, tuple[float, int, float]]] = defaultdict(dict)
    for line in lines:
        record = orjson.loads(line)
        client, round_, time_s = record.get("client"), record.get("round"), record["time_s"]
        for tag, value in _numbers(record):
            if not isinstance(client, int) or not 0 <= client < num_clients:  # it becomes a folder's name
                raise RunError(f"a record names the client {client!r}; there are {num_clients}")
            kind = "byzantine" if client in liars else "honest"
            found[f"client-{client:0{width}}-{kind}"][tag].extend((round_, time_s, value))
            if client not in liars:
                total, num, _ = sums[tag].get(round_, (0.0, 0, 0.0))
                sums[tag][round_] = total + value, num + 1, time_s
    for tag, rounds in sums.items():
        for round_, (total, num, time_s) in sorted(rounds.items()):
            found[HONEST_MEAN][tag].extend((round_, time_s, total / num))
    return dict(sorted(found.items()))


def write_scalars(series: Mapping[str, Series], folder: Path) -> None:
    """Write what TensorBoard reads: the round is the step, simulated time the wall time."""
    from torch.utils.tensorboard import SummaryWriter

    make_folder(folder)
    for old in folder.glob("*/events.out.tfevents.*"):  # or TensorBoard shows both
        if not old.parent.is_symlink():
            old.unlink()
    for name, tags in series.items():
        make_folder(folder / name)
        with SummaryWriter(str(folder / name)) as writer:
            for tag, values in tags.items():
                for round_, time_s, value in zip(values[::3], values[1::3], values[2::3], strict=True):
                    writer.add_scalar(tag, value, int(round_), walltime=time_s)


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The tags and values in a record; what is not known, or not a number, is left out."""
    match record["event"]:
        case "evaluation":
            tags = EVALUATION
        case "training_finished":
            tags = {"loss": "loss/training"}
        case "round_finished":
            tags = {key: f"round/{key}" for key in record if key not in NO_NUMBERS}
        case _:
            return
    for key, tag in tags.items():
        value = record.get(key)
        if isinstance(value, int | float):
            yield tag, float(value)
