"""Export the numbers of a run to TensorBoard, as series over rounds."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from rdpfl_sim.files import make_folder
from rdpfl_sim.records.metrics import MOMENTS
from rdpfl_sim.records.reader import Record, Topology, parse_record
from rdpfl_sim.records.record_types import RoundRecord, Scores

EVALUATION_TAGS = {
    f"{moment}_{name}": "/".join([*reversed(name.split("_")), moment])
    for moment in MOMENTS
    for name in Scores.__annotations__
}
"""The tags of scores, such as `accuracy/personal/trained`."""
HONEST_MEAN = "honest-mean"
AVERAGE_MODEL = "average-model"
CONSENSUS_TAGS = {
    "accuracy": "accuracy/global",
    "loss": "loss/global",
    "distance": "consensus/distance",
}
"""The tags of the average model (`evaluation.consensus`)."""

Series: TypeAlias = "dict[str, array[float]]"
"""For each tag, the interleaved rounds, simulated times and values."""


def read_series(lines: Iterable[bytes], topology: Topology) -> dict[str, Series]:
    """Return the series of every client, and of the mean over honest clients, by name."""
    num_clients, byzantine = topology["num_clients"], frozenset(topology["byzantine"])
    width = len(str(num_clients - 1))
    series: dict[str, Series] = defaultdict(lambda: defaultdict(lambda: array("d")))
    sums: dict[str, dict[int, tuple[float, int, float]]] = defaultdict(dict)
    for line in lines:
        record = parse_record(line, num_clients)
        if record["event"] == "consensus":
            for key, tag in CONSENSUS_TAGS.items():
                if record[key] is not None:
                    series[AVERAGE_MODEL][tag].extend((record["round"], record["time_s"], record[key]))
        for tag, time_s, value in _tagged_numbers(record):
            client, round_ = record["client"], record["round"]
            kind = "byzantine" if client in byzantine else "honest"
            series[f"client-{client:0{width}}-{kind}"][tag].extend((round_, time_s, value))
            if client not in byzantine:
                total, num, _ = sums[tag].get(round_, (0.0, 0, 0.0))
                sums[tag][round_] = total + value, num + 1, time_s
    for tag, rounds in sums.items():
        for round_, (total, num, time_s) in sorted(rounds.items()):
            series[HONEST_MEAN][tag].extend((round_, time_s, total / num))
    return dict(sorted(series.items()))


def write_series(series: Mapping[str, Series], folder: Path) -> None:
    """Write TensorBoard event files, with the round as step and simulated time as wall time."""
    from torch.utils.tensorboard import SummaryWriter

    make_folder(folder)
    for old in folder.glob("*/events.out.tfevents.*"):  # TensorBoard would show both old and new files
        if not old.parent.is_symlink():
            old.unlink()
    for name, tags in series.items():
        make_folder(folder / name)
        with SummaryWriter(str(folder / name)) as writer:
            for tag, values in tags.items():
                for round_, time_s, value in zip(values[::3], values[1::3], values[2::3], strict=True):
                    writer.add_scalar(tag, value, int(round_), walltime=time_s)


def _tagged_numbers(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield the tags, times and values of a record, except missing values."""
    match record["event"]:
        case "evaluated":
            tags = EVALUATION_TAGS
        case "training_finished":
            tags = {"loss": "loss/training"}
        case "round_finished" | "estimate":
            tags = {key: f"round/{key}" for key in record if key not in RoundRecord.__annotations__}
        case _:
            return
    for key, tag in tags.items():
        value = record.get(key)
        if isinstance(value, int | float):
            own_time = f"{key.partition('_')[0]}_time_s"  # of the evaluated model
            yield tag, record[own_time if own_time in record else "time_s"], float(value)
