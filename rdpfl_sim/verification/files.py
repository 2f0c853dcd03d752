"""The small files of the run folder that is verified."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx

from rdpfl_sim.errors import RunError, ScenarioError
from rdpfl_sim.records.json_file import read_json
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import TOPOLOGY
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.deployment import Deployment


class VerifiedFolder:
    """Scenario, topology, provenance and summary of a run; the latter two may be missing.

    Graph and Byzantine clients are computed from the scenario. If that fails, for example because a file that
    it names is missing, `not_built` is the reason, and they are read from topology.json.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = RunReader(folder)
        self.scenario = Scenario.of_run(folder)
        self.topology: Any = read_json(folder / TOPOLOGY)
        self.provenance = self.reader.read_provenance()
        self.summary = self.reader.read_summary()
        self.deployment: Deployment | None = None
        self.not_built: str | None = None
        try:
            self.deployment = Deployment(self.scenario)
        except ScenarioError as error:
            self.not_built = f"the scenario cannot be built here: {error}"

    @cached_property
    def graph(self) -> nx.Graph:
        """The graph at the start of the run."""
        if self.deployment is not None:
            return self.deployment.graph
        graph = nx.empty_graph(self.scenario.clients.count)
        try:
            graph.add_edges_from(self.topology["edges"])
        except (LookupError, TypeError, nx.NetworkXError) as error:
            raise RunError(f"{self.folder / TOPOLOGY} is damaged: {error}") from error
        if len(graph) != self.scenario.clients.count:
            raise RunError(f"{self.folder / TOPOLOGY} is damaged: it has links to unknown clients")
        return graph

    @cached_property
    def byzantine(self) -> frozenset[int]:
        """The Byzantine clients."""
        if self.deployment is not None:
            return frozenset(self.deployment.byzantine)
        try:
            return frozenset(self.topology["byzantine"])
        except (LookupError, TypeError) as error:
            raise RunError(f"{self.folder / TOPOLOGY} is damaged: {error}") from error
