"""Checks of the saved models of a run (`output.models`)."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from rdpfl_sim.errors import RunError
from rdpfl_sim.methods.base import is_finite
from rdpfl_sim.records.files import MODELS_FILE
from rdpfl_sim.records.record_types import FinalModel
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.simulation.models import Architecture, check_names, models_of, read_model, vector_of
from rdpfl_sim.simulation.safetensors import TensorFile
from rdpfl_sim.verification.check import Checks
from rdpfl_sim.verification.files import VerifiedFolder


class ModelChecks:
    """Compares models.safetensors with the scenario's model and with the hashes in the records."""

    def __init__(self, checks: Checks, folder: Path, files: VerifiedFolder) -> None:
        self.check = checks["models"]
        self.folder, self.files = folder, files
        self.hashes: dict[int, str] = {}

    def final_model(self, record: FinalModel, line: int) -> None:
        """Store the hash of a final model."""
        self.hashes[record["client"]] = record["blake2b"]

    def compare(self, has_records: bool) -> None:
        """Check every model in the file."""
        saved = self.files.scenario.output.models
        if saved == "none":
            self.check.num_items = 1
            if (self.folder / MODELS_FILE).exists():
                self.check.violated(None, f"there is a {MODELS_FILE}, but output.models is none")
            return
        if not RunStatus.of_summary(self.files.summary).is_complete:
            self.check.unchecked = "the run is not complete"
            return
        try:
            with models_of(self.folder, self.files.scenario) as file:
                self._compare(file, has_hashes=saved == "final" and has_records)
        except RunError as error:
            self.check.violated(None, str(error))

    def _compare(self, file: TensorFile, has_hashes: bool) -> None:
        model = Architecture.of_file(self.files.scenario, file).flat()
        clients = range(self.files.scenario.clients.count)
        check_names(file, [f"{client}.{name}" for client in clients for name in model.shapes])
        for client in clients:
            self.check.num_items += 1
            w = vector_of(model, read_model(file, model.shapes, f"{client}."))
            found = blake2b(w.numpy().tobytes(), digest_size=16).hexdigest()
            if has_hashes and self.hashes.get(client) != found:
                hashes = f"{found}, the records have {self.hashes.get(client)}"
                self.check.violated(None, f"the model of client {client} has the hash {hashes}")
            if self.files.scenario.output.models == "best" and not is_finite(w):
                self.check.violated(None, f"the best model of client {client} is not finite")
