"""Combinations of options that cannot be run.

Each check yields a `Problem` for what it finds. Its parameters name the sections that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import client_ids
from rdpfl_sim.errors import OptionError, Problem
from rdpfl_sim.rounding import round_down
from rdpfl_sim.scenario.sections import AdversarySection, Clients, NetworkSection, Timing, Training
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.faults import FAULTS

MAX_LINKS = 10_000_000


def no_deadlock(
    network: NetworkSection, timing: Timing, adversary: list[AdversarySection], faults: list[Component]
) -> Iterator[Problem]:
    """Require a timeout for clients that wait for messages that may never arrive."""
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
    for index, group in enumerate(adversary):
        if TIMING_ATTACKS.facts(group.timing.name).withholds:
            yield f"{group_path(adversary, index)}.timing", group.timing.name
    for index, fault in enumerate(faults):
        if FAULTS.facts(fault.name).may_lose_messages:
            yield f"faults[{index}]", fault.name


def byzantine_clients_are_possible(clients: Clients, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require attackers if there is an attack, an honest client, and at most one group per client."""
    taken: set[int] = set()
    num_byzantine = 0
    for index, group in enumerate(adversary):
        path = group_path(adversary, index)
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
        elif "fraction" not in group.model_fields_set and _attacks(group):
            key = next(
                key for key in ("attack", "timing", "equivocation") if getattr(group, key).name != "none"
            )
            yield Problem(
                f"{path}.{key}", "no attackers configured: set fraction or ids", getattr(group, key).name
            )
        else:
            num_byzantine += round_down(group.fraction * clients.count)
    if num_byzantine >= clients.count:
        option = "ids" if adversary[-1].ids is not None else "fraction"
        value = getattr(adversary[-1], option)
        yield Problem(
            f"{group_path(adversary, len(adversary) - 1)}.{option}", "leaves no honest client", value
        )


def _attacks(group: AdversarySection) -> bool:
    return any(component.name != "none" for component in (group.attack, group.timing, group.equivocation))


def group_path(adversary: list[AdversarySection], index: int) -> str:
    """Return the TOML path of a group of Byzantine clients: a single group is a table, not a list."""
    return "adversary" if len(adversary) == 1 else f"adversary[{index}]"


def just_in_time_needs_a_deadline(timing: Timing, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require a deadline of the victims if attackers send just in time for it."""
    if timing.wait.bind()().timeout_s is not None:
        return
    for index, group in enumerate(adversary):
        if group.timing.name == "just_in_time":
            message = "needs a timing.wait with a timeout_s, or 'deadline'"
            yield Problem(f"{group_path(adversary, index)}.timing", message, group.timing.name)


def victims_exist(clients: Clients, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that the victims of selective silence are clients of the scenario."""
    for index, group in enumerate(adversary):
        victims = getattr(group.timing, "victims", None)
        try:
            if victims is not None:
                client_ids("victims", victims, clients.count)
        except OptionError as error:
            yield Problem(f"{group_path(adversary, index)}.timing.victims", error.message, victims)


def schedules_are_possible(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that an attack ends after it starts."""
    for index, group in enumerate(adversary):
        window = group.schedule
        for low, high in (("from_round", "until_round"), ("from_s", "until_s")):
            end = getattr(window, high, None)
            if end is not None and end <= getattr(window, low) - (low == "from_round"):
                path = f"{group_path(adversary, index)}.schedule.{high}"
                yield Problem(path, f"must be after {low} = {getattr(window, low)}", end)


def links_fit_into_memory(
    clients: Clients, topology: Component, faults: list[Component]
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
    """Return the approximate number of links of topologies that can be dense, else 0."""
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


def steps_or_epochs(training: Training) -> Iterator[Problem]:
    """Require that the number of local steps is set in one way only."""
    if training.local_steps is not None and "local_epochs" in training.model_fields_set:
        yield Problem(
            "training.local_steps", "set either local_steps or local_epochs, not both", training.local_steps
        )


def ranges_are_in_order(network: NetworkSection, timing: Timing) -> Iterator[Problem]:
    """Require low_s <= high_s."""
    for path, component in (
        ("network.latency", network.latency),
        ("network.geography", network.geography),
        ("timing.compute", timing.compute),
        *((f"network.links[{index}].latency", link.latency) for index, link in enumerate(network.links)),
    ):
        low, high = getattr(component, "low_s", 0), getattr(component, "high_s", 0)
        if low > high:
            yield Problem(f"{path}.low_s", f"must be at most high_s = {high}", low)


def link_exceptions_have_an_effect(network: NetworkSection) -> Iterator[Problem]:
    """Require that an entry of network.links changes latency or loss."""
    for index, link in enumerate(network.links):
        if link.latency is None and link.loss is None:
            yield Problem(f"network.links[{index}]", "has no effect: set latency, loss, or both")


def equivocations_are_in_order(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require low <= high."""
    for index, group in enumerate(adversary):
        low, high = getattr(group.equivocation, "low", 0), getattr(group.equivocation, "high", 0)
        if low > high:
            path = f"{group_path(adversary, index)}.equivocation.low"
            yield Problem(path, f"must be at most high = {high}", low)


def victims_or_fraction(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Require that the victims of selective silence are set in one way only."""
    for index, group in enumerate(adversary):
        victims = getattr(group.timing, "victims", None)
        if victims is not None and "fraction" in group.timing.model_fields_set:
            path = f"{group_path(adversary, index)}.timing.victims"
            yield Problem(path, "set either victims or fraction, not both", victims)


def every_client_has_a_compute_time(clients: Clients, timing: Timing) -> Iterator[Problem]:
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
"""All checks. A check runs if the sections that its parameters name are valid."""
