"""The files of the verified run folder, and the checks of its scenario, end and digest."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.files import TOPOLOGY
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.record_types import RunStarted
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Checks

UNFINISHED = "the run has no summary"


class VerifiedFolder:
    """Scenario, topology, provenance, metrics and summary of a run; the last three may be missing."""

    def __init__(self, folder: Path) -> None:
        reader = RunReader(folder)
        self.scenario = Scenario.of_run(folder)
        topology, num_clients = reader.read_topology(), self.scenario.clients.count
        if topology["num_clients"] != num_clients:
            raise RunError(f"{folder / TOPOLOGY} is damaged: the scenario has {num_clients} clients")
        self.edges, self.byzantine = topology["edges"], frozenset(topology["byzantine"])
        self.provenance = reader.read_provenance()
        self.summary = reader.read_summary()
        self.metrics = reader.read_metrics() if reader.has_metrics() else []


class FolderChecks:
    """Checks that the run is complete, and that scenario, topology and first record agree."""

    def __init__(self, checks: Checks, files: VerifiedFolder) -> None:
        self.complete = checks["complete"]
        self.scenario = checks["scenario"]
        self.files = files
        summary, provenance = files.summary, files.provenance
        if summary is None:
            self.complete.violated(None, "there is no summary.json: the run is running or was killed")
        elif "messages" not in summary:
            self.complete.violated(None, f"the run is {summary['status']}: {summary.get('error')}")
        if provenance is None:
            self.scenario.unchecked = "there is no provenance.json"
        elif provenance["scenario_hash"] != files.scenario.hash:
            hashes = f"expected {provenance['scenario_hash']}, found {files.scenario.hash}"
            self.scenario.violated(None, f"scenario.toml has a different hash: {hashes}")

    def run_started(self, record: RunStarted, line: int) -> None:
        """Compare the first record with scenario and topology."""
        self.scenario.num_items += 2
        if record["seed"] != self.files.scenario.seed:
            seed = self.files.scenario.seed
            self.scenario.violated(
                line, f"the first record has the seed {record['seed']}, the scenario {seed}"
            )
        found = sorted(self.files.byzantine)
        if record["byzantine"] != found:
            self.scenario.violated(
                line, f"the Byzantine clients are {record['byzantine']}, in topology.json {found}"
            )

    def compare_end(self, first_event: str | None, last_event: str | None, num_lines: int) -> None:
        """Check the first and the last record."""
        self.complete.num_items += 2
        if first_event != "run_started":
            self.complete.violated(1, f"the first record is not run_started, but {first_event}")
        if last_event != "run_finished":
            self.complete.violated(
                num_lines or None, f"the last record is not run_finished, but {last_event}"
            )


class DigestCheck:
    """Recomputes the digest: a hash chain over all records but those of single messages."""

    def __init__(self, checks: Checks) -> None:
        self.check = checks["digest"]
        self.value = b""

    def add(self, line: bytes) -> None:
        """Add a record."""
        if not line.startswith(b'{"event":"message_'):
            self.check.num_items += 1
            self.value = blake2b(self.value + line, digest_size=32).digest()

    def compare(self, summary: JsonObject | None) -> None:
        """Compare the digest with the one in the summary."""
        found = self.value.hex()
        if summary is None or "digest" not in summary:
            self.check.unchecked = UNFINISHED
        elif summary["digest"] != found:
            recorded = str(summary["digest"])
            self.check.violated(
                None, f"the records have the digest {found[:16]}..., summary.json has {recorded[:16]}..."
            )
