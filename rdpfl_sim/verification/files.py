"""The small files of the verified run folder, and the checks of scenario, topology and faults."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
import orjson
import tomli_w

from rdpfl_sim.errors import RunError, ScenarioError
from rdpfl_sim.records.json_file import encode_json, first_difference, read_json
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.record_types import FaultRecord, RunFinished, RunStarted
from rdpfl_sim.records.run_folder import PROVENANCE, SCENARIO, TOPOLOGY
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.scenario.scenario import Scenario, is_older
from rdpfl_sim.simulation.deployment import Deployment
from rdpfl_sim.verification.check import Check, Needs


class VerifiedFolder:
    """Scenario, topology, provenance and summary of a run; the latter two may be missing.

    Graph and Byzantine clients are computed from the scenario. If this fails, for example because a file
    named in the scenario is missing, `not_built` is the reason, and they are read from topology.json.
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


class FileChecks:
    """Compares topology, provenance, faults and the first record with the scenario."""

    def __init__(self, files: VerifiedFolder) -> None:
        self.scenario_check = Check(
            "scenario",
            "scenario.toml has the hash in provenance.json and agrees with the first record.",
            Needs.NOTHING,
        )
        self.deployment_check = Check(
            "deployment",
            "Topology, Byzantine clients and faults follow from scenario and seed.",
            Needs.NOTHING,
        )
        self.checks = [self.scenario_check, self.deployment_check]
        self.files, self.scenario, self.deployment = files, files.scenario, files.deployment
        self.changes = iter(()) if self.deployment is None else self.deployment.changes()
        self.next_change = next(self.changes, None)
        self.deployment_check.unchecked = files.not_built
        self._check_form()
        self._check_hash()

    def run_started(self, record: RunStarted, line: int) -> None:
        """Compare the first record with the scenario."""
        self.scenario_check.num_items += 3
        if record["schema"] != SCHEMA:
            self.scenario_check.violated(line, f"the schema must be {SCHEMA}")
        if record["seed"] != self.scenario.seed:
            self.scenario_check.violated(line, f"the scenario's seed is {self.scenario.seed}")
        if record["byzantine"] != sorted(self.files.byzantine):
            self.scenario_check.violated(line, "the Byzantine clients differ from the scenario")

    def fault(self, record: FaultRecord, line: int) -> None:
        """Check that the fault is the next one implied by the scenario."""
        if self.deployment is None:
            return
        self.deployment_check.num_items += 1
        found = None
        if self.next_change is not None:
            time_s, place, change = self.next_change
            found = {"event": "fault", "time_s": max(time_s, 0.0), "fault": place, **change.fields}
        self.next_change = next(self.changes, None)
        if found is None or encode_json(found) != encode_json(record):
            self.deployment_check.violated(line, "scenario and seed imply a different fault, or none")

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Check that no fault is missing."""
        if self.next_change is not None and self.next_change[0] < record["time_s"]:
            self.deployment_check.violated(line, f"a fault at {self.next_change[0]} s is missing")

    def _check_form(self) -> None:
        """Check that the files have the encoding that a run writes."""
        reader, deployment, provenance = self.files.reader, self.deployment, self.files.provenance
        scenario = self.scenario.to_dict()
        if is_older(reader.folder / SCENARIO):
            del scenario["execution"]["arithmetic"]
        if reader.read_bytes(SCENARIO) != tomli_w.dumps(scenario).encode():
            self.scenario_check.violated(None, "scenario.toml is formatted differently")
        if provenance is not None:
            is_written = encode_json(provenance) == reader.read_bytes(PROVENANCE)
            if list(provenance) != ["scenario_hash", "sessions"] or not is_written:
                self.scenario_check.violated(None, "provenance.json is formatted differently")
        self.deployment_check.num_items += 1
        if deployment is not None and encode_json(deployment.topology) != reader.read_bytes(TOPOLOGY):
            difference = first_difference(self.files.topology, orjson.loads(encode_json(deployment.topology)))
            self.deployment_check.violated(
                None, f"topology.json: {difference or 'it is formatted differently'}"
            )

    def _check_hash(self) -> None:
        self.scenario_check.num_items += 1
        provenance = self.files.provenance
        if provenance is None:
            self.scenario_check.unchecked = "there is no provenance.json"
        elif provenance.get("scenario_hash") != self.scenario.hash:
            hashes = f"expected {provenance.get('scenario_hash')}, found {self.scenario.hash}"
            self.scenario_check.violated(None, f"scenario.toml has a different hash: {hashes}")
