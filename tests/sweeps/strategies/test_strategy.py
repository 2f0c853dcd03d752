"""The loop that executes the runs of a strategy, with a search that is told one score per run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.runner import folder_of, read_summary
from rdpfl_sim.sweeps.strategies import run_strategy
from rdpfl_sim.sweeps.strategies.grid import Grid
from tests.sweeps.sweeping import FakeRunner, RecordingListener, make_run

BATCH = 2


class Search:
    """Tries seeds in rounds of two, and continues with the two that follow the best one, within a budget."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.scores: dict[int, float] = {}
        self.batch = [1, 2]

    def next_runs(self) -> list[PlannedRun]:
        return [make_run(seed) for seed in self.batch] if self.budget > 0 else []

    def num_later_runs(self) -> int:
        return self.budget - BATCH

    def read_results(self, output: Path) -> None:
        for seed in self.batch:
            summary = read_summary(make_run(seed), output)
            self.scores[seed] = -1.0 if summary is None else summary["score"]
        self.budget -= BATCH
        best = max(self.scores, key=self.scores.__getitem__)
        self.batch = [best + 1, best + 2]


def scoring(score: Callable[[int], float | None]) -> FakeRunner:
    """A runner that writes the score of every seed; a run without a score fails."""

    def write(run: PlannedRun, folder: Path) -> bool:
        value = score(run.scenario.seed)
        (folder / "summary.json").write_text(json.dumps({"schema": SCHEMA, "score": value}))
        return value is not None

    return FakeRunner(write)


def test_every_round_depends_on_the_results_of_the_rounds_before(tmp_path: Path) -> None:
    search, listener = Search(6), RecordingListener()
    run_strategy(search, scoring(lambda seed: seed / 10), tmp_path, listener)
    assert search.scores == {seed: seed / 10 for seed in range(1, 7)}
    assert listener.begun == [make_run(seed).key for seed in range(1, 7)]
    assert listener.rounds == [(0, 2, 4), (0, 2, 2), (0, 2, 0), (0, 0, 0)]


def test_interrupted_strategy_continues_from_its_complete_runs(tmp_path: Path) -> None:
    def score(seed: int) -> float:
        if seed == 4:
            raise KeyboardInterrupt
        return seed / 10

    with pytest.raises(KeyboardInterrupt):
        run_strategy(Search(6), scoring(score), tmp_path, RecordingListener())
    search, listener = Search(6), RecordingListener()
    run_strategy(search, scoring(lambda seed: seed / 10), tmp_path, listener)
    assert search.scores == {seed: seed / 10 for seed in range(1, 7)}
    assert listener.begun == [make_run(seed).key for seed in (4, 5, 6)]
    assert listener.rounds == [(2, 0, 4), (1, 1, 2), (0, 2, 0), (0, 0, 0)]
    assert listener.repeated == [folder_of(make_run(4), tmp_path)]


def test_run_that_is_requested_again_is_neither_counted_nor_repeated_even_if_it_failed(
    tmp_path: Path,
) -> None:
    search, listener = Search(6), RecordingListener()
    run_strategy(search, scoring(lambda seed: 0.5 if seed == 1 else None), tmp_path, listener)
    assert search.scores == {1: 0.5, 2: -1.0, 3: -1.0}
    assert listener.begun == [make_run(seed).key for seed in (1, 2, 3)]
    assert listener.rounds == [(0, 2, 4), (0, 1, 2), (0, 0, 0), (0, 0, 0)]


def test_grid_is_one_round_and_without_missing_runs_nothing_is_executed(tmp_path: Path) -> None:
    runs = [make_run(1), make_run(2)]
    for num_missing in (2, 0):
        listener = RecordingListener()
        run_strategy(Grid(runs), scoring(lambda seed: 0.5), tmp_path, listener)
        assert len(listener.begun) == num_missing
        assert listener.rounds == [(2 - num_missing, num_missing, 0), (0, 0, 0)]
