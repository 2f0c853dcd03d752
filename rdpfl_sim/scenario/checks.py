"""Checks for combinations of options that cannot be run.

Each check yields a `Problem` per mistake. Its parameters name the sections that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from rdpfl_sim.components.options import client_ids, round_down
from rdpfl_sim.components.schema import Component, components_in
from rdpfl_sim.errors import OptionError, PluginError, Problem, ScenarioError, errors_at
from rdpfl_sim.methods.base import Method
from rdpfl_sim.scenario.sections import (
    AdversarySection,
    ClientsSection,
    EvaluationSection,
    ModelTable,
    NetworkSection,
    OutputSection,
    TimingSection,
    TrainingSection,
)
from rdpfl_sim.toml import join_path
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.network.links import LossFacts
from rdpfl_sim.world.network.topology import TopologyFacts

P = ParamSpec("P")
T = TypeVar("T")

MAX_LINKS = 10_000_000


def no_deadlock(
    network: NetworkSection, timing: TimingSection, adversary: list[AdversarySection], faults: list[Component]
) -> Iterator[Problem]:
    """Require a timeout if clients wait for messages that may never arrive."""
    wait = timing.wait.bind()()
    if wait.fraction == 0 or wait.timeout_s is not None:
        return
    for path, cause in _causes_of_missing_messages(network, adversary, faults):
        message = (
            f"'{timing.wait.name}' without timeout_s could wait forever, because messages may be lost or "
            f"withheld ({path} is '{cause}'); allowed: a timeout_s, wait = 'deadline', wait = 'none'"
        )
        yield Problem("timing.wait", message, timing.wait.name)
        return


def _causes_of_missing_messages(
    network: NetworkSection, adversary: list[AdversarySection], faults: list[Component]
) -> Iterator[tuple[str, str]]:
    for location, part in components_in(network, ("network",)):
        if isinstance(part.facts, LossFacts) and of_plugin(part, part.facts.loses, **part.options):
            yield join_path(location), part.name
    for path, group in groups_by_path(adversary).items():
        if TIMING_ATTACKS.facts(group.timing.name).withholds:
            yield f"{path}.timing", group.timing.name
    for index, fault in enumerate(faults):
        if FAULTS.facts(fault.name).may_lose_messages:
            yield f"faults[{index}]", fault.name


def groups_by_path(adversary: list[AdversarySection]) -> dict[str, AdversarySection]:
    """Return the groups of Byzantine clients by TOML path: a single group is a table, not a list."""
    if len(adversary) == 1:
        return {"adversary": adversary[0]}
    return {f"adversary[{index}]": group for index, group in enumerate(adversary)}


def byzantine_clients_are_possible(
    clients: ClientsSection, adversary: list[AdversarySection]
) -> Iterator[Problem]:
    """Require attackers for each attack, at least one honest client, and at most one group per client."""
    taken: set[int] = set()
    num_byzantine = 0
    groups = groups_by_path(adversary)
    for path, group in groups.items():
        if group.ids is not None:
            for other in ("fraction", "placement"):
                if other in group.model_fields_set:
                    yield Problem(f"{path}.ids", f"set either ids or {other}, not both", group.ids)
            try:
                ids = client_ids("ids", group.ids, clients.count) if group.ids else ()
            except OptionError as error:
                yield Problem(f"{path}.ids", error.message, group.ids)
                continue
            if taken.intersection(ids):
                yield Problem(f"{path}.ids", "a client belongs to two groups of attackers", group.ids)
            taken.update(ids)
            num_byzantine += len(ids)
        elif group.fraction > 0 and round_down(group.fraction * clients.count) == 0:
            allowed = f"allowed: 0, or at least 1/{clients.count}"
            yield Problem(f"{path}.fraction", f"is less than one client; {allowed}", group.fraction)
        elif "fraction" not in group.model_fields_set and group.attacks:
            key, name = next(iter(group.attacks.items()))
            yield Problem(f"{path}.{key}", "no attackers configured: set fraction or ids", name)
        else:
            num_byzantine += round_down(group.fraction * clients.count)
    if num_byzantine >= clients.count:
        path, group = groups.popitem()
        option = "ids" if group.ids is not None else "fraction"
        yield Problem(f"{path}.{option}", "leaves no honest client", getattr(group, option))


def attacks_have_a_deadline(timing: TimingSection, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that victims have a deadline if attackers send just before it."""
    if timing.wait.bind()().timeout_s is not None:
        return
    for path, group in groups_by_path(adversary).items():
        if TIMING_ATTACKS.facts(group.timing.name).needs_deadline:
            message = "requires timing.wait to be 'deadline' or to have a timeout_s"
            yield Problem(f"{path}.timing", message, group.timing.name)


def links_fit_into_memory(
    clients: ClientsSection, topology: Component, faults: list[Component]
) -> Iterator[Problem]:
    """Reject a dense graph of very many clients before it is built."""
    everywhere = [*components_in(topology, ("topology",)), *components_in(faults, ("faults",))]
    for location, chosen in everywhere:
        if not isinstance(chosen.facts, TopologyFacts):
            continue
        num_links = of_plugin(chosen, chosen.facts.num_links, clients.count, **chosen.options)
        if num_links > MAX_LINKS:
            message = f"{clients.count:,} clients would have {num_links:,.0f} links; allowed: {MAX_LINKS:,}"
            yield Problem(join_path(location), message, chosen.name)


def steps_or_epochs(training: TrainingSection) -> Iterator[Problem]:
    """Require that the number of local steps is set in one way only."""
    if training.local_steps is not None and "local_epochs" in training.model_fields_set:
        yield Problem(
            "training.local_steps", "set either local_steps or local_epochs, not both", training.local_steps
        )


def weights_are_the_start(model: ModelTable, training: TrainingSection) -> Iterator[Problem]:
    """Reject `training.start` if a file has the initial weights."""
    if model.weights is not None and training.start == "different":
        yield Problem("training.start", "has no effect: model.weights has the initial weights", "different")


def best_models_are_validated(output: OutputSection, evaluation: EvaluationSection) -> Iterator[Problem]:
    """Require a validation split if the best models are saved."""
    if output.models == "best" and evaluation.validation_fraction == 0:
        message = "requires evaluation.validation_fraction above 0; without it, allowed: none, final"
        yield Problem("output.models", message, output.models)


def momentum_continues(training: TrainingSection, method: Component) -> Iterator[Problem]:
    """Require momentum, and a method that does not start it at zero in every round, if it continues."""
    if not training.momentum_over_rounds:
        return
    path, target = "training.momentum_over_rounds", type(method).target
    if isinstance(target, type) and issubclass(target, Method) and target.momentum is not None:
        message = f"the momentum of {method.name!r} starts at zero in every round (method.{target.momentum})"
        yield Problem(path, message, True)
    elif training.momentum == 0:
        yield Problem(path, "has no effect without training.momentum", True)


def theory_covers_training(training: TrainingSection, evaluation: EvaluationSection) -> Iterator[Problem]:
    """Require plain SGD with a constant learning rate, which the paper's bound assumes."""
    if not evaluation.theory:
        return
    schedule = training.schedule
    if schedule.name != "constant" or getattr(schedule, "warmup", 0) > 0:
        message = "evaluation.theory requires a constant learning rate without warm-up"
        yield Problem("training.schedule", message, schedule.name)
    if training.momentum > 0:
        yield Problem(
            "training.momentum", "evaluation.theory requires SGD without momentum", training.momentum
        )
    if training.clip_gradient is not None:
        message = "evaluation.theory requires gradients that are not clipped"
        yield Problem("training.clip_gradient", message, training.clip_gradient)


def link_exceptions_have_an_effect(network: NetworkSection) -> Iterator[Problem]:
    """Require that an entry of network.links changes latency or loss."""
    for index, link in enumerate(network.links):
        if link.latency is None and link.loss is None:
            yield Problem(f"network.links[{index}]", "has no effect: set latency, loss, or both")


CHECKS: list[Callable[..., Iterator[Problem]]] = [
    no_deadlock,
    byzantine_clients_are_possible,
    attacks_have_a_deadline,
    link_exceptions_have_an_effect,
    links_fit_into_memory,
    momentum_continues,
    steps_or_epochs,
    weights_are_the_start,
    best_models_are_validated,
    theory_covers_training,
]
"""All checks. A check runs if the sections named by its parameters are valid."""


def component_problems(path: str, component: Component, num_clients: int) -> Iterator[Problem]:
    """Yield a problem if options of a component contradict each other or the number of clients."""
    facts = component.facts
    for option, replaced in facts.replaces.items():
        value = getattr(component, option)
        if value is not None and replaced in component.model_fields_set:
            yield Problem(f"{path}.{option}", f"set either {option} or {replaced}, not both", value)
    if facts.check is not None:
        try:
            with errors_at(path, component):
                of_plugin(component, facts.check, component, num_clients)
        except ScenarioError as error:
            yield from error.problems


def of_plugin(component: Component, fact: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a fact that is a function; an error in a plug-in names the plug-in."""
    try:
        return fact(*arguments, **options)
    except OptionError:
        raise
    except Exception as error:
        if component.plugin is None:
            raise
        flaw = f"declares a fact that fails: {component.plugin.explain(error)}"
        raise PluginError(component.plugin, flaw) from error
