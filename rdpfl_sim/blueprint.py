"""From a scenario to everything that a run needs: graph, attackers, shards, model, trainer, compute times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, floor
from statistics import NormalDist

import networkx as nx
import torch
from torch import Tensor

from rdpfl_sim.errors import Problem, ScenarioError, located
from rdpfl_sim.execution.inline import Inline
from rdpfl_sim.execution.inline import Settings as TrainingSettings
from rdpfl_sim.learning.datasets import Dataset, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.partition import Indices, split_test
from rdpfl_sim.methods.base import Method, Settings
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.world.neighbourhoods import Neighbourhoods
from rdpfl_sim.world.topology import neighbours as neighbours_of

SMALL_MODEL = 50_000
"""Below this many parameters a training step is too short for a second thread to help."""

SMALL_TEST = 5
"""A personal test set with fewer images is worth a warning."""


class Blueprint:
    """A scenario made concrete. What cannot be built raises a `ScenarioError`; nothing is written."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        problems: list[Problem] = []
        with _gathered(problems):
            self.device = _device(scenario.execution.device)
        with _gathered(problems):
            self._build_graph()
        with _gathered(problems), located("method", scenario.method):
            settings = Settings(scenario.training.learning_rate, scenario.rounds)
            self.method: Method = scenario.method.bind()(settings)
        with _gathered(problems), located("data", scenario.data):
            data: Dataset = scenario.data.bind()(self.streams.generator("data"))
            with _gathered(problems), located("partition", scenario.partition):
                shards = self._shards(data)
            with _gathered(problems), located("model", scenario.model):
                module = scenario.model.bind()(data.shape, data.num_classes)
        if problems:
            raise ScenarioError(problems)
        self._build_learning(data, shards, FlatModel(module, self.device))
        self._build_compute_times()

    @property
    def warnings(self) -> list[str]:
        """What a user should know before believing the result."""
        found = self.neighbourhoods.warnings
        smallest = min(len(shard) for shard in self.personal_tests)
        if smallest < SMALL_TEST:
            found.append(f"the smallest personal test set has {smallest} images: its accuracy is coarse")
        timing = self.scenario.timing
        if (timing.wait.name, timing.staleness.name) == ("none", "drop") and self.method.exchanges:
            found.append(
                "clients do not wait, and drop messages of earlier rounds: they will use few or none "
                "(timing.staleness = 'keep' would use them)"
            )
        return found

    @property
    def num_threads(self) -> int:
        """Torch threads: as the scenario says, or one for a small model, which more would only slow down."""
        if self.scenario.execution.threads is not None:
            return self.scenario.execution.threads
        return 1 if self.model.num_parameters < SMALL_MODEL else torch.get_num_threads()

    def _build_graph(self) -> None:
        topology, adversary, num_clients = (
            self.scenario.topology,
            self.scenario.adversary,
            self.scenario.clients.count,
        )
        with located("topology", topology):
            self.graph: nx.Graph = topology.bind()(num_clients, self.streams.generator("topology"))
        self.neighbours = neighbours_of(self.graph)
        if adversary.ids is not None:
            self.byzantine = sorted(adversary.ids)
        else:
            # The slack is for products such as 0.29 * 100, a little less than 29.
            count = floor(adversary.fraction * num_clients + 1e-9)
            self.byzantine = adversary.placement.bind()(
                self.graph, count, self.streams.generator("placement")
            )
        self.neighbourhoods = Neighbourhoods.of(self.graph, self.byzantine)

    def _shards(self, data: Dataset) -> list[Indices]:
        partition, num_clients = self.scenario.partition.bind(), self.scenario.clients.count
        shards: list[Indices] = partition(
            data.y_train.numpy(), num_clients, self.streams.generator("partition")
        )
        return shards

    def _build_learning(self, data: Dataset, shards: list[Indices], model: FlatModel) -> None:
        personal = split_test(
            data.y_train.numpy(),
            shards,
            data.y_test.numpy(),
            data.num_classes,
            self.streams.generator("test split"),
        )
        x_train, y_train, x_test, y_test = (
            tensor.to(self.device) for tensor in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.model = model
        self.train_shards = [Shard(x_train, y_train, torch.from_numpy(s).to(self.device)) for s in shards]
        self.personal_tests = [Shard(x_test, y_test, torch.from_numpy(s).to(self.device)) for s in personal]
        self.global_test = Shard(x_test, y_test, torch.arange(len(y_test), device=self.device))
        settings = TrainingSettings(**self.scenario.training.model_dump(exclude={"start"}))
        self.trainer = Inline(model, self.train_shards, settings, self.streams)

    def _build_compute_times(self) -> None:
        timing = self.scenario.timing
        compute, key = timing.compute.bind(), self.streams.key("speed")
        self.compute_s: list[float] = [
            compute(uniform(key, client), client)
            * (self.trainer.settings.num_steps(len(shard)) if timing.compute_per == "step" else 1)
            for client, shard in enumerate(self.train_shards)
        ]

    def initial_model(self, client: int) -> Tensor:
        """The model with which a client starts."""
        index = () if self.scenario.training.start == "same" else (client,)
        return self.model.initial(self.streams.key("start", *index))

    def duration_s(self, client: int, round_: int) -> float:
        """How long a client's local training takes in a round."""
        jitter = self.scenario.timing.jitter
        if jitter == 0:
            return self.compute_s[client]
        z = NormalDist().inv_cdf(uniform(self.streams.key("jitter", client), round_))
        return self.compute_s[client] * exp(jitter * z)


@contextmanager
def _gathered(problems: list[Problem]) -> Iterator[None]:
    """Add what goes wrong to the list, so that all of it is told at once."""
    try:
        yield
    except ScenarioError as error:
        problems.extend(error.problems)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ScenarioError(
            [Problem("execution.device", "no CUDA device is available; allowed: auto, cpu", name)]
        )
    return torch.device(name)
