"""The sections of a scenario: every key, its type and its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rdpfl_sim.components.options import LARGE, ClientSet, Count, Fraction, NonNegative, Positive, Probability
from rdpfl_sim.components.registry import Component, OneOf, Strict
from rdpfl_sim.execution.choice import EXECUTORS
from rdpfl_sim.execution.choice import REMOVED as REMOVED_EXECUTORS
from rdpfl_sim.execution.devices import DeviceName
from rdpfl_sim.execution.num_workers import MAX_WORKERS
from rdpfl_sim.learning.datasets.embedded import DATASETS
from rdpfl_sim.learning.models import MODELS
from rdpfl_sim.learning.partition import PARTITIONS
from rdpfl_sim.maths.attacks.attacks import ATTACKS
from rdpfl_sim.maths.attacks.equivocation import EQUIVOCATIONS
from rdpfl_sim.methods import METHODS
from rdpfl_sim.world.adversary.adversary import Level
from rdpfl_sim.world.adversary.placement import PLACEMENTS
from rdpfl_sim.world.adversary.schedules import SCHEDULES
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.compute_time import COMPUTE
from rdpfl_sim.world.faults.faults import FAULTS
from rdpfl_sim.world.network.bandwidth import BANDWIDTHS
from rdpfl_sim.world.network.geography import GEOGRAPHIES
from rdpfl_sim.world.network.latency import LATENCIES
from rdpfl_sim.world.network.links import LOSSES
from rdpfl_sim.world.network.topology import TOPOLOGIES
from rdpfl_sim.world.network.transport import TRANSPORTS
from rdpfl_sim.world.waiting import STALENESS, WAITS

CHOICES = {
    choice.kind: choice
    for choice in (
        OneOf("topology", TOPOLOGIES, "ring"),
        OneOf("data", DATASETS, "digits"),
        OneOf("partition", PARTITIONS, "dirichlet"),
        OneOf("model", MODELS, "mlp"),
        OneOf("method", METHODS, "rdpfl"),
        OneOf("attack", ATTACKS, "none"),
        OneOf("timing_attack", TIMING_ATTACKS, "none"),
        OneOf("attack_schedule", SCHEDULES, "always"),
        OneOf("equivocation", EQUIVOCATIONS, "none"),
        OneOf("placement", PLACEMENTS, "random"),
        OneOf("latency", LATENCIES, "constant"),
        OneOf("geography", GEOGRAPHIES, "none"),
        OneOf("loss", LOSSES, "none"),
        OneOf("bandwidth", BANDWIDTHS, "unlimited"),
        OneOf("transport", TRANSPORTS, "datagram"),
        OneOf("fault", FAULTS),
        OneOf("compute", COMPUTE, "constant"),
        OneOf("wait", WAITS, "all"),
        OneOf("staleness", STALENESS, "drop"),
        OneOf("executor", EXECUTORS, "auto", removed=REMOVED_EXECUTORS),
    )
}
"""Everything that is chosen by name at the level of a section, with its default."""


def chosen(kind: str) -> Any:
    """The field of a component that is chosen by name."""
    return Field(default=CHOICES[kind].default, description=f"one of: {', '.join(CHOICES[kind].registry)}")


class Clients(Strict):
    """Who takes part."""

    count: Annotated[Count, Field(le=1_000_000)] = 10  # some 50 kB of memory each


Steps = Annotated[Count, Field(le=1_000_000)]  # the batches of a whole round are drawn at once


class Training(Strict):
    """Local SGD."""

    local_epochs: Steps = Field(
        default=1, description="passes over the shard a round: K = epochs * ceil(n / batch_size)"
    )
    local_steps: Steps | None = Field(default=None, description="K itself, in place of local_epochs")
    batch_size: Annotated[Count, Field(le=1_000_000)] = 64
    learning_rate: Positive = 0.01
    momentum: Annotated[NonNegative, Field(lt=1)] = 0.0
    weight_decay: NonNegative = 0.0
    start: Literal["same", "different"] = Field(
        default="same", description="whether all clients begin with the same model"
    )


class AdversarySection(Strict):
    """A group of Byzantine clients: who they are, what they know, what they send and when."""

    attack: Annotated[Component, CHOICES["attack"]] = chosen("attack")
    timing: Annotated[Component, CHOICES["timing_attack"]] = chosen("timing_attack")
    schedule: Annotated[Component, CHOICES["attack_schedule"]] = chosen("attack_schedule")
    equivocation: Annotated[Component, CHOICES["equivocation"]] = chosen("equivocation")
    knowledge: Level = Field(
        default="omniscient",
        description="whose updates attackers see: their own, what reaches them as messages, all honest ones",
    )
    collude: bool = Field(default=True, description="whether the group shares what its members know")
    fraction: Fraction = Field(default=0.0, description="of the clients, rounded down to whole clients")
    ids: ClientSet | None = Field(
        default=None, description="explicit ids, in place of fraction and placement"
    )
    placement: Annotated[Component, CHOICES["placement"]] = chosen("placement")
    patience_s: Positive | None = Field(
        default=None,
        description="how long an attacker waits for updates that it wants to see; by default half the "
        "timeout of timing.wait, or as long as it takes if there is none",
    )


class LinkSection(Strict):
    """Links that are different from the others."""

    from_: ClientSet = Field(alias="from", description="the senders")
    to: ClientSet = Field(description="the recipients")
    both_ways: bool = Field(default=True, description="whether it also holds in the other direction")
    latency: Annotated[Component | None, CHOICES["latency"].optional()] = None
    loss: Annotated[Component | None, CHOICES["loss"].optional()] = None


class NetworkSection(Strict):
    """What happens to messages on their way."""

    latency: Annotated[Component, CHOICES["latency"]] = chosen("latency")
    geography: Annotated[Component, CHOICES["geography"]] = chosen("geography")
    loss: Annotated[Component, CHOICES["loss"]] = chosen("loss")
    duplication: Probability = Field(default=0.0, description="probability that a message arrives twice")
    bandwidth: Annotated[Component, CHOICES["bandwidth"]] = chosen("bandwidth")
    compression: Annotated[float, Field(ge=1, le=LARGE)] = Field(
        default=1.0, description="declared ratio: messages are so many times smaller, their values unchanged"
    )
    transport: Annotated[Component, CHOICES["transport"]] = chosen("transport")
    links: list[LinkSection] = Field(default=[], description="exceptions for some links; a later one counts")


class Timing(Strict):
    """How long things take, and who waits for what."""

    compute: Annotated[Component, CHOICES["compute"]] = chosen("compute")
    compute_per: Literal["round", "step"] = Field(
        default="round", description="whether the compute time is that of a round or of one SGD step"
    )
    jitter: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="each round's compute time varies by exp(jitter * z), z normal"
    )
    wait: Annotated[Component, CHOICES["wait"]] = chosen("wait")
    staleness: Annotated[Component, CHOICES["staleness"]] = chosen("staleness")
    prefer: Literal["round", "newest"] = Field(
        default="round", description="of a sender's waiting messages use that of the own round, or the newest"
    )
    mailbox_per_sender: Count = Field(default=8, description="messages kept per sender; the oldest make room")
    max_time_s: Positive | None = Field(default=None, description="stop the run at this simulated time")


class EvaluationSection(Strict):
    """When models are tested, and on what."""

    every: Count = Field(
        default=5, description="rounds between evaluations; the first and last are always evaluated"
    )
    global_test: bool = Field(default=True, description="also test on the global test set")
    global_every: Count | None = Field(
        default=None,
        description="rounds between tests on the global test set, if that is to be less often",
    )
    global_samples: Count | None = Field(
        default=1000, description="how many images of the global test set are used, the same for all; at most"
    )
    theory: bool = Field(
        default=False, description="also estimate both sides of the paper's bound for honest clients"
    )


class Output(Strict):
    """What is written."""

    folder: str = Field(default="runs", min_length=1)
    events: bool = Field(default=True, description="write events.jsonl")
    message_events: Fraction = Field(default=1.0, description="fraction of messages whose events are written")
    figures: bool = True
    telemetry: bool = Field(
        default=True, description="find out distance and weight of every message that is used"
    )


class CheckpointSection(Strict):
    """When a run is written down, to be resumed if it is interrupted or killed; it never changes a result."""

    every_rounds: Count | None = Field(
        default=None, description="after so many rounds of all clients together, on average"
    )
    every_minutes: Positive = Field(default=5.0, description="after so many minutes of wall-clock time")


class Execution(Strict):
    """Where the arithmetic runs; it never changes simulated time."""

    executor: Annotated[Component, CHOICES["executor"]] = chosen("executor")
    device: DeviceName = Field(
        default="auto",
        description="what trains: cpu, cuda (the first GPU) or cuda:N; auto is a GPU if there is one and the "
        "model has 50,000 parameters or more",
    )
    threads: Annotated[Count, Field(le=MAX_WORKERS)] = Field(
        default=1, description="torch threads of each worker; their number decides the last bits of a result"
    )
