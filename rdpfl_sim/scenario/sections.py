"""The sections of a scenario: every key, its type and its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.attacks.equivocation import EQUIVOCATIONS
from rdpfl_sim.components.options import LARGE, ClientSet, Count, Fraction, NonNegative, Positive, Probability
from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.execution.arithmetic import Arithmetic
from rdpfl_sim.execution.auto import EXECUTORS
from rdpfl_sim.execution.auto import REMOVED as REMOVED_EXECUTORS
from rdpfl_sim.execution.devices import MAX_WORKERS, DeviceName
from rdpfl_sim.learning.datasets.dataset import DATASETS
from rdpfl_sim.learning.models import MODELS, Precision
from rdpfl_sim.learning.partition import PARTITIONS
from rdpfl_sim.learning.training import LEARNING_RATE_SCHEDULES
from rdpfl_sim.methods import METHODS
from rdpfl_sim.records.metrics import Moments
from rdpfl_sim.world.adversary.placement import PLACEMENTS
from rdpfl_sim.world.adversary.schedules import SCHEDULES
from rdpfl_sim.world.adversary.threat_model import Level
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from rdpfl_sim.world.compute_time import COMPUTE
from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.network.bandwidth import BANDWIDTHS
from rdpfl_sim.world.network.latency import GEOGRAPHIES, LATENCIES
from rdpfl_sim.world.network.links import LOSSES
from rdpfl_sim.world.network.topology import TOPOLOGIES
from rdpfl_sim.world.network.transport import TRANSPORTS
from rdpfl_sim.world.staleness import STALENESS
from rdpfl_sim.world.waiting import WAITS


class ModelTable(Component):
    """The keys of every model."""

    weights: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="safetensors file with the initial weights: one model for all clients, or the saved "
        "models of a run with as many clients",
    )


CHOICES = {
    choice.kind: choice
    for choice in (
        OneOf(TOPOLOGIES, "ring"),
        OneOf(DATASETS, "digits"),
        OneOf(PARTITIONS, "dirichlet"),
        OneOf(MODELS, "mlp", base=ModelTable),
        OneOf(LEARNING_RATE_SCHEDULES, "constant"),
        OneOf(METHODS, "rdpfl"),
        OneOf(ATTACKS, "none"),
        OneOf(TIMING_ATTACKS, "none"),
        OneOf(SCHEDULES, "always"),
        OneOf(EQUIVOCATIONS, "none"),
        OneOf(PLACEMENTS, "random"),
        OneOf(LATENCIES, "constant"),
        OneOf(GEOGRAPHIES, "none"),
        OneOf(LOSSES, "none"),
        OneOf(BANDWIDTHS, "unlimited"),
        OneOf(TRANSPORTS, "datagram"),
        OneOf(FAULTS),
        OneOf(COMPUTE, "constant"),
        OneOf(WAITS, "all"),
        OneOf(STALENESS, "keep"),
        OneOf(EXECUTORS, "auto", removed=REMOVED_EXECUTORS),
    )
}
"""The kinds of components that are chosen by name in sections, with their defaults."""


def component_field(kind: str, meaning: str) -> Any:
    """Return the field of a component that is chosen by name."""
    names = ", ".join(CHOICES[kind].registry)
    return Field(default=CHOICES[kind].default, description=f"one of: {names}; {meaning}")


class ClientsSection(Strict):
    """The clients of the federation."""

    count: Annotated[Count, Field(le=1_000_000)] = Field(  # about 50 kB of memory each
        default=10, description="number of clients"
    )


NumSteps = Annotated[Count, Field(le=1_000_000)]  # the batches of a whole round are drawn together


class TrainingSection(Strict):
    """Local SGD."""

    local_epochs: NumSteps = Field(
        default=1, description="passes over the shard per round: K = epochs * ceil(n / batch_size)"
    )
    local_steps: NumSteps | None = Field(
        default=None, description="number of steps K per round, instead of local_epochs"
    )
    batch_size: Annotated[Count, Field(le=1_000_000)] = Field(
        default=64, description="batch size, in samples"
    )
    learning_rate: Positive = Field(default=0.01, description="learning rate, eta in the paper")
    schedule: Annotated[Component, CHOICES["learning_rate_schedule"]] = component_field(
        "learning_rate_schedule", "factor of the learning rate in round t + 1 of a client"
    )
    momentum: Annotated[NonNegative, Field(lt=1)] = Field(default=0.0, description="momentum")
    momentum_over_rounds: bool = Field(
        default=False, description="whether momentum continues in the next round; otherwise it starts at zero"
    )
    weight_decay: NonNegative = Field(default=0.0, description="weight decay, a factor of w in the gradient")
    clip_gradient: Positive | None = Field(
        default=None,
        description="largest norm of the gradient of a batch, before weight decay; default: no limit",
    )
    precision: Precision = Field(
        default="float32",
        description="number format of products and convolutions in training; weights, messages, aggregation "
        "and losses are always float32; bfloat16 implies native arithmetic",
    )
    start: Literal["same", "different"] = Field(
        default="same", description="whether all clients start with the same model"
    )


class AdversarySection(Strict):
    """A group of Byzantine clients: its members, observations, attack and timing."""

    attack: Annotated[Component, CHOICES["attack"]] = component_field(
        "attack", "content of the messages that the group sends"
    )
    timing: Annotated[Component, CHOICES["timing_attack"]] = component_field(
        "timing_attack", "times at which the group sends its messages"
    )
    schedule: Annotated[Component, CHOICES["attack_schedule"]] = component_field(
        "attack_schedule", "rounds or times at which the group attacks"
    )
    equivocation: Annotated[Component, CHOICES["equivocation"]] = component_field(
        "equivocation", "differences between the messages to different recipients"
    )
    knowledge: Level = Field(
        default="omniscient",
        description="updates that attackers observe: only their own, also those they receive, or all honest "
        "updates",
    )
    collude: bool = Field(default=True, description="whether members of the group share their observations")
    fraction: Fraction = Field(default=0.0, description="fraction of Byzantine clients, rounded down")
    ids: ClientSet | None = Field(default=None, description="explicit ids, instead of fraction and placement")
    placement: Annotated[Component, CHOICES["placement"]] = component_field(
        "placement", "choice of the Byzantine clients"
    )
    patience_s: Positive | None = Field(
        default=None,
        description="how long an attacker waits for updates that its attack needs (default: half the timeout "
        "of timing.wait, or no limit without a timeout)",
    )
    outside_threat_model: Annotated[str, Field(min_length=1, max_length=300)] | None = Field(
        default=None,
        description="why at least half of an honest client's neighbours may be Byzantine; the warning about "
        "such clients states this reason",
    )

    @property
    def attacks(self) -> dict[str, str]:
        """The names of its attacks, by key; empty if its clients behave honestly."""
        parts = {"attack": self.attack, "timing": self.timing, "equivocation": self.equivocation}
        fields = type(self).model_fields
        return {key: part.name for key, part in parts.items() if part.name != fields[key].default}


class LinkSection(Strict):
    """Exceptions for some links."""

    from_: ClientSet = Field(alias="from", description="the senders")
    to: ClientSet = Field(description="the recipients")
    both_ways: bool = Field(default=True, description="whether the entry also applies in the other direction")
    latency: Annotated[Component | None, CHOICES["latency"].optional()] = Field(
        default=None, description="latency of these links, instead of network.latency"
    )
    loss: Annotated[Component | None, CHOICES["loss"].optional()] = Field(
        default=None, description="loss on these links, instead of network.loss"
    )


class NetworkSection(Strict):
    """Delay, loss and bandwidth of messages."""

    latency: Annotated[Component, CHOICES["latency"]] = component_field(
        "latency", "random part of the delay on every link"
    )
    geography: Annotated[Component, CHOICES["geography"]] = component_field(
        "geography", "fixed part of the delay on every link"
    )
    loss: Annotated[Component, CHOICES["loss"]] = component_field("loss", "loss of messages on every link")
    duplication: Probability = Field(default=0.0, description="probability that a message arrives twice")
    bandwidth: Annotated[Component, CHOICES["bandwidth"]] = component_field(
        "bandwidth", "time that the size of messages adds to their delay"
    )
    compression: Annotated[float, Field(ge=1, le=LARGE)] = Field(
        default=1.0,
        description="factor by which the size of messages is reduced; their values do not change",
    )
    transport: Annotated[Component, CHOICES["transport"]] = component_field(
        "transport", "what happens to a lost message"
    )
    links: list[LinkSection] = Field(
        default=[], description="exceptions for some links; the last entry for a link applies"
    )


class TimingSection(Strict):
    """Compute times, and how clients wait for messages."""

    compute: Annotated[Component, CHOICES["compute"]] = component_field(
        "compute", "simulated duration of local training"
    )
    compute_per: Literal["round", "step"] = Field(
        default="round", description="whether the compute time is per round or per SGD step"
    )
    jitter: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="variation of compute time per round: a factor exp(jitter * z), z normal"
    )
    wait: Annotated[Component, CHOICES["wait"]] = component_field(
        "wait", "how long a client waits for the messages of its round"
    )
    staleness: Annotated[Component, CHOICES["staleness"]] = component_field(
        "staleness", "use of messages from earlier rounds"
    )
    prefer: Literal["round", "newest"] = Field(
        default="round",
        description="message to use from each sender: the one for the client's own round, or the newest",
    )
    mailbox_per_sender: Count = Field(
        default=8, description="messages kept per sender; the oldest is dropped first"
    )
    max_time_s: Positive | None = Field(default=None, description="simulated time at which the run stops")


class EvaluationSection(Strict):
    """The schedule and the data of evaluations."""

    every: Count = Field(
        default=5, description="rounds between evaluations; the first and last are always evaluated"
    )
    moments: Moments = Field(
        default="both",
        description="models to evaluate: trained, after the local training; updated, after the exchange with "
        "neighbours. Tables and figures show trained unless only updated is evaluated",
    )
    global_test: bool = Field(default=True, description="also evaluate on the global test set")
    global_every: Count | None = Field(
        default=None,
        description="rounds between evaluations on the global test set (default: the value of every)",
    )
    global_samples: Count | None = Field(
        default=1000, description="maximum number of global test samples, the same for all clients"
    )
    validation_fraction: Probability = Field(
        default=0.0,
        description="fraction of the training examples of every client that is held out for validation, "
        "rounded up; K counts the others",
    )
    consensus: bool = Field(
        default=False,
        description="also evaluate the average model of the honest clients after the exchange on the global "
        "test set, and their mean distance from it",
    )
    theory: bool = Field(
        default=False, description="also estimate both sides of the paper's bound for honest clients"
    )


class OutputSection(Strict):
    """The files that a run writes."""

    folder: str = Field(default="runs", min_length=1, description="folder in which each run gets its own")
    events: bool = Field(default=True, description="write events.jsonl")
    message_events: Fraction = Field(default=1.0, description="fraction of messages whose events are written")
    figures: bool = Field(default=True, description="draw curves.png and topology.png")
    models: Literal["none", "final", "best"] = Field(
        default="none",
        description="write the models of all clients to models.safetensors: the last ones, or each client's "
        "best by validation accuracy (the earliest of equals). They are the models after local training or, "
        'with evaluation.moments = "updated", after the exchange',
    )
    telemetry: bool = Field(
        default=True, description="record the distance and the weight of every message used"
    )


class CheckpointSection(Strict):
    """The schedule of checkpoints, from which an interrupted run resumes. It does not change results."""

    every_rounds: Count | None = Field(
        default=None, description="rounds between checkpoints, averaged over clients"
    )
    every_minutes: Positive = Field(default=5.0, description="minutes of wall-clock time between checkpoints")


class ExecutionSection(Strict):
    """Where models are computed. This never changes simulated time."""

    executor: Annotated[Component, CHOICES["executor"]] = component_field(
        "executor", "how and where clients are computed"
    )
    device: DeviceName = Field(
        default="auto",
        description="device for training: cpu, cuda (the first GPU) or cuda:N; auto uses a GPU if one is "
        "available and the model has at least 50,000 parameters",
    )
    threads: Annotated[Count, Field(le=MAX_WORKERS)] = Field(
        default=1, description="torch threads per worker; their number affects the last bits of results"
    )
    arithmetic: Arithmetic = Field(
        default="portable",
        description="portable: the same results on every x86-64 processor with AVX2 and FMA; native: the "
        "processor's fastest instructions, which round differently",
    )
