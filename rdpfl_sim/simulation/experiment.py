"""Build the parts of a run from a scenario: deployment, data, model, method and compute times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.errors import Problem, ScenarioError, errors_at
from rdpfl_sim.execution import arithmetic, devices
from rdpfl_sim.execution.executor import EXECUTORS, Executor, RoundComputation, TrainingConfig, TrainingData
from rdpfl_sim.files import check_memory
from rdpfl_sim.learning.datasets.dataset import Dataset, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.partition import Indices, split_test, split_validation
from rdpfl_sim.methods.base import ClientView, Form, Layer, Method, Payload, RunInfo, State, Trained
from rdpfl_sim.plugin_checks import rehearse
from rdpfl_sim.randomness import Streams
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import AdversarySection
from rdpfl_sim.simulation.deployment import Deployment, collect_problems
from rdpfl_sim.simulation.models import Architecture, check_size, read_weights
from rdpfl_sim.world.adversary.adversary import Plan
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS, patience_s
from rdpfl_sim.world.compute_time import ComputeTimes

SMALL_TEST = 5
"""Personal test sets with fewer images cause a warning."""

NOT_PORTABLE = "results depend on the hardware, because {}; execution.arithmetic = 'native' confirms this"

SLOW_BFLOAT16 = (
    "this processor has no bfloat16 arithmetic, so training in bfloat16 is many times slower than in float32"
)

COARSE_TEST = "the smallest personal test set has {} {}, so its accuracy is coarse"


class Split(NamedTuple):
    """The examples of every client: all of them, those for training, and those for validation, if any."""

    shards: list[Indices]
    training: list[Indices]
    validation: list[Indices]


class Experiment:
    """A built scenario: its deployment, data, model, method and compute times.

    Raises a `ScenarioError` that lists everything that cannot be built, before any file is written.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.streams = Streams(scenario.seed)
        problems: list[Problem] = []
        execution = scenario.execution
        with collect_problems(problems):
            arithmetic.use(scenario.arithmetic)
        with collect_problems(problems), errors_at("execution", execution):
            devices.check(execution.device, EXECUTORS.facts(execution.executor.name))
        with collect_problems(problems):
            self.deployment = Deployment(scenario)
        model: FlatModel | None = None
        with collect_problems(problems):
            data = load_data(scenario)
            with collect_problems(problems):
                with errors_at("partition", scenario.partition):
                    shards = self._shards(data)
                with errors_at("evaluation", scenario.evaluation):
                    parts = self._held_out(shards)
            with collect_problems(problems), errors_at("model", scenario.model):
                self.architecture = tested_architecture(scenario, data)
                model = self.architecture.flat()
        with collect_problems(problems), errors_at("method", scenario.method):
            run = RunInfo(scenario.rounds, () if model is None else layers_of(model.module))
            self.method: Method = scenario.method.bind()(run)
        if problems:
            raise ScenarioError(problems)
        assert model is not None
        with errors_at("model", scenario.model):  # every client has its own model
            num_models = 2 if scenario.output.models == "best" else 1
            check_memory("", 4 * model.num_parameters * scenario.clients.count * num_models)
        self.device = devices.choose(
            execution.device, model.num_parameters, EXECUTORS.facts(execution.executor.name)
        )
        devices.prepare(self.device)
        model = model if self.device == devices.CPU else model.on(self.device)
        self._build_learning(data, Split(shards, *parts), model)
        if scenario.output.models != "none":
            with errors_at("output", scenario.output):
                check_size(self.model, scenario.clients.count)
        with errors_at("timing.compute", scenario.timing.compute):
            self.compute_times = self._compute_times()
        plugin = type(scenario.method).plugin
        if plugin is not None:
            with errors_at("method", scenario.method):
                rehearse(self.method, plugin, self.initial_model(0), self.computation)

    @property
    def warnings(self) -> list[str]:
        """Properties of the scenario, its data and its compute times that may make the result misleading."""
        found = [*self.deployment.warnings, *self._coarse_tests()]
        if self.scenario.execution.arithmetic != self.arithmetic:
            found.append(NOT_PORTABLE.format(self._why_native))
        if self._kind_of_device == "cpu" and self.settings.precision == "bfloat16":
            found += [] if arithmetic.has_bfloat16() else [SLOW_BFLOAT16]
        if self.executor_warning is not None:
            found.append(self.executor_warning)
        of_faults = self.deployment.fault_warnings(training_s=min(self.compute_times.base_s))
        return [*found, *(warning for warning in of_faults if warning not in found)]

    @property
    def arithmetic(self) -> arithmetic.Arithmetic:
        """The arithmetic of the run: portable results exist only on x86-64 processors."""
        return self.scenario.execution.arithmetic if self._why_native is None else "native"

    @property
    def _why_native(self) -> str | None:
        """The reason why the results cannot be portable, or None."""
        return arithmetic.why_native(self._kind_of_device, self.scenario.training.precision)

    @property
    def _kind_of_device(self) -> str:
        """The device that trains, or `auto` if the workers of a cluster choose it."""
        is_remote = EXECUTORS.facts(self.scenario.execution.executor.name).is_remote
        return self.training_data.device if is_remote else str(self.device)

    def _coarse_tests(self) -> Iterator[str]:
        smallest = min(len(shard) for shard in self.personal_tests)
        if smallest < SMALL_TEST:
            yield COARSE_TEST.format(smallest, "image" if smallest == 1 else "images")

    def plans(self) -> list[Plan]:
        """Return the plan of every group of attackers."""
        return [self._plan(section) for section in self.scenario.adversary]

    def _plan(self, section: AdversarySection) -> Plan:
        attack, timing = ATTACKS.facts(section.attack.name), TIMING_ATTACKS.facts(section.timing.name)
        wait = self.scenario.timing.wait.bind()()
        return Plan(
            attack=section.attack.bind(),
            sees_honest=attack.needs != "own",
            sees_victim=attack.needs == "victim",
            poisons_labels=attack.poisons_labels,
            collective=attack.collective,
            timing=section.timing.bind(),
            remembers=timing.needs_past,
            schedule=section.schedule.bind(),
            equivocation=section.equivocation.bind(),
            knowledge=section.knowledge,
            collude=section.collude,
            patience_s=patience_s(wait) if section.patience_s is None else section.patience_s,
        )

    def _shards(self, data: Dataset) -> list[Indices]:
        partition, num_clients = self.scenario.partition.bind(), self.scenario.clients.count
        shards: list[Indices] = partition(
            data.y_train.numpy(), num_clients, self.streams.generator("partition")
        )
        return shards

    def _held_out(self, shards: list[Indices]) -> tuple[list[Indices], list[Indices]]:
        """Return the training and the validation examples of every client."""
        fraction = self.scenario.evaluation.validation_fraction
        if fraction == 0:
            return shards, []
        return split_validation(shards, fraction, partial(self.streams.generator, "validation"))

    def _build_learning(self, data: Dataset, split: Split, model: FlatModel) -> None:
        personal = split_test(
            data.y_train.numpy(),
            split.shards,
            data.y_test.numpy(),
            data.num_classes,
            self.streams.generator("test split"),
        )
        x_train, y_train, x_test, y_test = (
            tensor.to(self.device) for tensor in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.model = model
        weights, num_clients = self.scenario.model.weights, self.scenario.clients.count
        self.weights = None if weights is None else read_weights(weights, model, num_clients)
        self.train_shards = [
            Shard(x_train, y_train, torch.from_numpy(s).to(self.device), data.augment) for s in split.training
        ]
        self.personal_tests = [Shard(x_test, y_test, torch.from_numpy(s).to(self.device)) for s in personal]
        self.global_test = Shard(x_test, y_test, self._sample(len(y_test)).to(self.device))
        training = self.scenario.training
        self.settings = settings = TrainingConfig(
            **training.model_dump(exclude={"start", "schedule"}),
            schedule=training.schedule.bind(),
            rounds=self.scenario.rounds,
        )
        flipped = data.num_classes - 1 - y_train
        poisoned = {
            client: replace(self.train_shards[client], y=flipped) for client in self.deployment.byzantine
        }
        device, executor = self.scenario.execution.device, self.scenario.execution.executor
        gpu = devices.uses_gpu(device, model.num_parameters, EXECUTORS.facts(executor.name))
        self.training_data = TrainingData(
            self.train_shards,
            poisoned,
            self.personal_tests,
            self.global_test,
            settings,
            self.streams,
            device if gpu else "cpu",
            validation=[
                Shard(x_train, y_train, torch.from_numpy(s).to(self.device)) for s in split.validation
            ],
        )
        self.computation = RoundComputation(
            model, self.training_data, self.method, self.scenario.output.telemetry
        )
        self.executor_warning = self.make_executor().warning

    def make_executor(self) -> Executor:
        """Return an executor for one run."""
        executor = self.scenario.execution.executor
        with errors_at("execution.executor", executor):
            made: Executor = executor.bind()(self.computation)
        return made

    def _sample(self, num_test: int) -> Tensor:
        """Return the indices of the global test set: the examples on which all models are compared."""
        num_samples = min(num_test, self.scenario.evaluation.global_samples or num_test)
        rng = self.streams.generator("global test")
        return torch.from_numpy(np.sort(rng.choice(num_test, num_samples, replace=False)))

    def _compute_times(self) -> ComputeTimes:
        timing = self.scenario.timing
        num_units = [
            self.settings.num_steps(len(shard)) if timing.compute_per == "step" else 1
            for shard in self.train_shards
        ]
        return ComputeTimes(timing.compute.bind(), num_units, timing.jitter, self.streams)

    def initial_model(self, client: int) -> Tensor:
        """Return the initial model of a client."""
        if self.weights is not None:
            return self.weights[client % len(self.weights)]
        index = () if self.scenario.training.start == "same" else (client,)
        return self.model.initial(self.streams.key("start", *index))

    @cached_property
    def _shared_row(self) -> Tensor:
        """The initial model as a row; one tensor for all clients saves memory and evaluations."""
        return self.initial_model(0).unsqueeze(0)

    def initial_state(self, client: int) -> State:
        """Return the method's state for a client at its start or fresh restart."""
        is_shared = self.scenario.training.start == "same" and len(self.weights or [None]) == 1
        w = self._shared_row if is_shared else self.initial_model(client).unsqueeze(0)
        return self.method.init(w, [self._view(client, 0)])

    def message_form(self) -> Form:
        """Return the form of all messages, which is the form of client 0's payload."""
        state = self.initial_state(0)
        trained = Trained(state.w, num_steps=(1,), losses=(0.0,), learning_rates=(1.0,))
        _, outgoing = self.method.payload(state, trained, [self._view(0, 1)])
        return Payload(outgoing.vectors[0], None if outgoing.masks is None else outgoing.masks[0]).form

    def _view(self, client: int, round_: int) -> ClientView:
        return ClientView(client, round_, len(self.deployment.neighbours[client]), self.computation)


def layers_of(module: nn.Module) -> list[Layer]:
    """Return the layers of a model in the order of its flat vector."""
    layers, start = [], 0
    for name, p in module.named_parameters():
        layers.append(Layer(name, start, tuple(p.shape)))
        start += p.numel()
    return layers


def tested_architecture(scenario: Scenario, data: Dataset) -> Architecture:
    """Return the architecture of the models; a plug-in is tested here, and not for every initial model."""
    if type(scenario.model).plugin is not None:
        scenario.model.bind()(data.shape, data.num_classes)
    return Architecture.of(scenario, data.shape, data.num_classes)


def wants_gpu(scenario: Scenario) -> bool:
    """Return whether the process of a run uses a GPU if its machine has one.

    The size of the model depends on the data set. If the data set is not on this machine, the model is
    assumed to be large.
    """
    device, executor = scenario.execution.device, EXECUTORS.facts(scenario.execution.executor.name)
    num_parameters = devices.SMALL_MODEL
    if device == "auto":
        with suppress(ScenarioError), errors_at("model", scenario.model):
            data = load_data(scenario)
            num_parameters = tested_architecture(scenario, data).flat().num_parameters
    return not executor.is_remote and devices.uses_gpu(device, num_parameters, executor)


def load_data(scenario: Scenario) -> Dataset:
    """Return the data set of a scenario, or raise a `ScenarioError` that names the missing part."""
    with errors_at("data", scenario.data):
        data: Dataset = scenario.data.bind()(Streams(scenario.seed).generator("data"))
        return data
