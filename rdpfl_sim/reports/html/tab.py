"""Tabs of the report on a run: every file in `tabs/` is one tab.

To add a tab, add a file there with a function decorated with `@run_tab` that takes the records and returns
cards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import polars as pl

from rdpfl_sim.components.registry import import_modules
from rdpfl_sim.reports.html import tabs
from rdpfl_sim.reports.html.page import Card, Tab
from rdpfl_sim.results import Run
from rdpfl_sim.results.run import last_evaluations

MESSAGE_COLUMNS = (
    *("sender", "recipient", "is_byzantine", "round", "sent_s", "delivered_s", "lost_s", "delay_s"),
    *("outcome", "reason", "age", "weight"),
)
NOT_EVALUATED = "No client has been evaluated yet, or metrics.csv is missing."


@dataclass(frozen=True)
class RunRecords:
    """A run and its records as frames. Each frame is read once for all tabs."""

    run: Run

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """One row per client and evaluation, at the moment of the run."""
        return self.run.evaluations()

    @cached_property
    def last(self) -> pl.DataFrame:
        """The last evaluation of each client."""
        return last_evaluations(self.metrics)

    @cached_property
    def messages(self) -> pl.DataFrame:
        """One row per recorded message."""
        return self.run.messages.select(MESSAGE_COLUMNS).collect()

    @cached_property
    def rounds(self) -> pl.DataFrame:
        """One row per round started by a client."""
        return self.run.rounds.collect()

    @cached_property
    def last_round(self) -> int:
        """The last round that any client has finished, the end of all axes of rounds.

        It may be larger than `Run.round_range.most`, because a client that joins late skips rounds.
        """
        finished = self.rounds.filter(pl.col("finished_s").is_not_null())["round"]
        return max((int(round_) for round_ in (*finished, *self.metrics["round"])), default=0)

    @cached_property
    def end_s(self) -> float:
        """The simulated end of the run, or the time of its last record."""
        if "simulated_s" in self.run.summary:
            return float(self.run.summary["simulated_s"])
        frames = [frame for frame in (self.metrics, self.messages, self.rounds) if frame.height]
        latest = [time_s for frame in frames for time_s in frame.select(pl.col("^.*_s$").max()).row(0)]
        return max((time_s for time_s in latest if time_s is not None), default=0.0)


MakeCards: TypeAlias = Callable[[RunRecords], Sequence[Card]]

_tabs: dict[int, tuple[str, MakeCards]] = {}


def run_tab(name: str, *, position: int) -> Callable[[MakeCards], MakeCards]:
    """Register a function as a tab of the report; tabs are ordered by position."""

    def register(make_cards: MakeCards) -> MakeCards:
        assert position not in _tabs, f"two tabs have the position {position}"
        _tabs[position] = name, make_cards
        return make_cards

    return register


def run_tabs(records: RunRecords) -> list[Tab]:
    """Return all tabs of the report."""
    import_modules(tabs.__name__, tabs.__path__)
    return [Tab(name, make_cards(records)) for _, (name, make_cards) in sorted(_tabs.items())]


def no_events(title: str, run: Run) -> Card:
    """Return a card that explains why there are no events."""
    if run.scenario.get("output", {}).get("events") is False:
        return Card(title, missing="Events were not recorded: output.events is false.")
    return Card(title, missing="events.jsonl is empty or missing.")
