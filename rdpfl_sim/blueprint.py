"""From a scenario to everything that a run needs: graph, attackers, shards, model, trainer, compute times."""

from __future__ import annotations

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
from rdpfl_sim.learning.partition import split_test
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
        self.device = _device(scenario.execution.device)
        self.graph = self._graph()
        self.neighbours = neighbours_of(self.graph)
        self.byzantine = self._byzantine()
        self.neighbourhoods = Neighbourhoods.of(self.graph, self.byzantine)
        self._build_learning()
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

    def _graph(self) -> nx.Graph:
        topology = self.scenario.topology
        with located("topology", topology):
            graph: nx.Graph = topology.bind()(self.scenario.clients.count, self.streams.generator("topology"))
        return graph

    def _byzantine(self) -> list[int]:
        adversary = self.scenario.adversary
        if adversary.ids is not None:
            return sorted(adversary.ids)
        # The slack is for products such as 0.29 * 100, a little less than 29.
        count = floor(adversary.fraction * self.scenario.clients.count + 1e-9)
        chosen: list[int] = adversary.placement.bind()(self.graph, count, self.streams.generator("placement"))
        return chosen

    def _build_learning(self) -> None:
        scenario, streams = self.scenario, self.streams
        with located("data", scenario.data):
            data: Dataset = scenario.data.bind()(streams.generator("data"))
        labels = data.y_train.numpy()
        with located("partition", scenario.partition):
            shards = scenario.partition.bind()(labels, scenario.clients.count, streams.generator("partition"))
        with located("model", scenario.model):
            self.model = FlatModel(scenario.model.bind()(data.shape, data.num_classes), self.device)
        personal = split_test(
            labels, shards, data.y_test.numpy(), data.num_classes, streams.generator("test split")
        )
        x_train, y_train, x_test, y_test = (
            tensor.to(self.device) for tensor in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.train_shards = [Shard(x_train, y_train, torch.from_numpy(s).to(self.device)) for s in shards]
        self.personal_tests = [Shard(x_test, y_test, torch.from_numpy(s).to(self.device)) for s in personal]
        self.global_test = Shard(x_test, y_test, torch.arange(len(y_test), device=self.device))
        self.trainer = Inline(
            self.model,
            self.train_shards,
            TrainingSettings(**scenario.training.model_dump(exclude={"start"})),
            streams,
        )
        with located("method", scenario.method):
            settings = Settings(scenario.training.learning_rate, scenario.rounds)
            self.method: Method = scenario.method.bind()(settings)

    def _build_compute_times(self) -> None:
        timing = self.scenario.timing
        with located("timing.compute", timing.compute):
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


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ScenarioError(
            [Problem("execution.device", "no CUDA device is available; allowed: auto, cpu", name)]
        )
    return torch.device(name)
