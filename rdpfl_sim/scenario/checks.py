"""Checks for combinations of options that cannot be run.

Each check yields a `Problem` per mistake. Its parameters name the sections that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rdpfl_sim.components.options import client_ids, round_down
from rdpfl_sim.components.schema import Component
from rdpfl_sim.errors import OptionError, Problem
from rdpfl_sim.scenario.sections import (
    AdversarySection,
    ClientsSection,
    NetworkSection,
    TimingSection,
    TrainingSection,
)
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.faults import FAULTS

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
    losses = {"network.loss": network.loss}
    losses |= {f"network.links[{i}].loss": link.loss for i, link in enumerate(network.links) if link.loss}
    for path, loss in losses.items():
        probabilities = [value for key, value in loss if key in ("probability", "loss_calm", "loss_burst")]
        if loss.name != "none" and (any(probabilities) or not probabilities):
            yield path, loss.name
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


def just_in_time_needs_a_deadline(
    timing: TimingSection, adversary: list[AdversarySection]
) -> Iterator[Problem]:
    """Require that victims have a deadline if attackers send just before it."""
    if timing.wait.bind()().timeout_s is not None:
        return
    for path, group in groups_by_path(adversary).items():
        if group.timing.name == "just_in_time":
            message = "requires timing.wait to be 'deadline' or to have a timeout_s"
            yield Problem(f"{path}.timing", message, group.timing.name)


def victims_exist(clients: ClientsSection, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that the victims of selective silence are clients in the scenario."""
    for path, group in groups_by_path(adversary).items():
        victims = getattr(group.timing, "victims", None)
        try:
            if victims is not None:
                client_ids("victims", victims, clients.count)
        except OptionError as error:
            yield Problem(f"{path}.timing.victims", error.message, victims)


def victims_or_fraction(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that the victims of selective silence are set in one way only."""
    for path, group in groups_by_path(adversary).items():
        victims = getattr(group.timing, "victims", None)
        if victims is not None and "fraction" in group.timing.model_fields_set:
            yield Problem(f"{path}.timing.victims", "set either victims or fraction, not both", victims)


def schedules_are_possible(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that an attack ends after it starts."""
    for path, group in groups_by_path(adversary).items():
        window = group.schedule
        for low, high in (("from_round", "until_round"), ("from_s", "until_s")):
            end = getattr(window, high, None)
            if end is not None and end <= getattr(window, low) - (low == "from_round"):
                message = f"must be after {low} = {getattr(window, low)}"
                yield Problem(f"{path}.schedule.{high}", message, end)


def links_fit_into_memory(
    clients: ClientsSection, topology: Component, faults: list[Component]
) -> Iterator[Problem]:
    """Reject a dense graph of very many clients before it is built."""
    topologies = {"topology": topology}
    for index, fault in enumerate(faults):
        changed = getattr(fault, "topology", None)
        if isinstance(changed, Component):
            topologies[f"faults[{index}].topology"] = changed
    for path, chosen in topologies.items():
        num_links = _num_links(chosen, clients.count)
        if num_links > MAX_LINKS:
            message = f"{clients.count:,} clients would have {num_links:,.0f} links; allowed: {MAX_LINKS:,}"
            yield Problem(path, message, chosen.name)


def _num_links(topology: Component, num_clients: int) -> float:
    """Return the approximate number of links for topologies that can be dense, otherwise 0."""
    pairs = num_clients * (num_clients - 1) / 2
    match topology.name:
        case "complete":
            return pairs
        case "erdos_renyi":
            return pairs * float(getattr(topology, "p", 0))
        case "k_regular" | "small_world":
            return num_clients * int(getattr(topology, "k", 0)) / 2
        case "scale_free":
            return num_clients * int(getattr(topology, "m", 0))
        case "communities":
            num = getattr(topology, "num", None) or len(getattr(topology, "sizes", None) or (1, 1))
            return pairs * (getattr(topology, "p_out", 0) + getattr(topology, "p_in", 0) / num)
    return 0.0


def steps_or_epochs(training: TrainingSection) -> Iterator[Problem]:
    """Require that the number of local steps is set in one way only."""
    if training.local_steps is not None and "local_epochs" in training.model_fields_set:
        yield Problem(
            "training.local_steps", "set either local_steps or local_epochs, not both", training.local_steps
        )


def ranges_are_in_order(network: NetworkSection, timing: TimingSection) -> Iterator[Problem]:
    """Require low_s <= high_s."""
    yield from _is_in_order("network.latency", network.latency, "low_s", "high_s")
    yield from _is_in_order("network.geography", network.geography, "low_s", "high_s")
    yield from _is_in_order("timing.compute", timing.compute, "low_s", "high_s")
    for index, link in enumerate(network.links):
        yield from _is_in_order(f"network.links[{index}].latency", link.latency, "low_s", "high_s")


def equivocations_are_in_order(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require low <= high."""
    for path, group in groups_by_path(adversary).items():
        yield from _is_in_order(f"{path}.equivocation", group.equivocation, "low", "high")


def _is_in_order(path: str, component: Component | None, low: str, high: str) -> Iterator[Problem]:
    least, most = getattr(component, low, 0), getattr(component, high, 0)
    if least > most:
        yield Problem(f"{path}.{low}", f"must be at most {high} = {most}", least)


def link_exceptions_have_an_effect(network: NetworkSection) -> Iterator[Problem]:
    """Require that an entry of network.links changes latency or loss."""
    for index, link in enumerate(network.links):
        if link.latency is None and link.loss is None:
            yield Problem(f"network.links[{index}]", "has no effect: set latency, loss, or both")


def every_client_has_a_compute_time(clients: ClientsSection, timing: TimingSection) -> Iterator[Problem]:
    """Require one entry per client in a list of compute times."""
    seconds = getattr(timing.compute, "seconds", None)
    if isinstance(seconds, list) and len(seconds) != clients.count:
        yield Problem(
            "timing.compute.seconds",
            f"must have {clients.count} entries, one per client; it has {len(seconds)}",
            seconds,
        )


CHECKS: list[Callable[..., Iterator[Problem]]] = [
    no_deadlock,
    byzantine_clients_are_possible,
    just_in_time_needs_a_deadline,
    victims_exist,
    victims_or_fraction,
    equivocations_are_in_order,
    link_exceptions_have_an_effect,
    schedules_are_possible,
    links_fit_into_memory,
    steps_or_epochs,
    ranges_are_in_order,
    every_client_has_a_compute_time,
]
"""All checks. A check runs if the sections named by its parameters are valid."""
