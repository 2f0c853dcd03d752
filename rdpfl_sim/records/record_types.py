"""The records of events.jsonl, with the order and the types of their fields.

Records are flat JSON objects, one per line. `verify` and the frames use these definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class RecordHead(TypedDict):
    """The first fields of every record: its name and its simulated time."""

    event: str
    time_s: float


class RunStarted(RecordHead):
    """The first record."""

    schema: int
    seed: int
    num_parameters: int
    byzantine: list[int]


class RoundRecord(RecordHead):
    """A record of a client's round."""

    client: int
    round: int


class TrainingStarted(RoundRecord):
    """A client starts its local training."""

    duration_s: float


class TrainingFinished(RoundRecord):
    """A client ends its local training."""

    loss: float | None
    num_steps: int


class RoundFinished(RoundRecord):
    """A client stops waiting and uses its messages. One `message_used` record per message follows."""

    num_used: int
    max_age: int | None


class EstimateRecord(RoundRecord, total=False):
    """The method's diagnostics of a finished round. The fields depend on the method; it may add others.

    The record is written before the model of the round is evaluated, and no later than the end of the
    client's next training, a crash or the end of the run. A method without diagnostics writes no estimate.
    """

    u_norm: float | None
    d_norm: float | None
    neighbour_share: float | None
    delta_norm: float | None
    beta: float | None
    tau: float | None
    clipped: bool | None
    bounded: bool | None


class Evaluated(RoundRecord):
    """A client's model is evaluated; `round` is the client's last finished round."""

    personal_accuracy: float | None
    personal_loss: float | None
    global_accuracy: float | None
    global_loss: float | None


class Theory(RoundRecord):
    """Loss and gradient of a client's objective, for the paper's bound (`evaluation.theory`)."""

    loss: float | None
    gradient_norm: float | None
    L: float | None


class MessageRecord(RecordHead):
    """A record of a message; `round` is the round stated by the sender."""

    message: int
    sender: int
    recipient: int
    round: int


class MessageSent(MessageRecord):
    """A client sends a message; `true_round` is the sender's current round."""

    true_round: int
    size_bytes: float


class MessageCopied(MessageRecord):
    """The network duplicates the message `original`."""

    original: int


class MessageDelivered(MessageRecord):
    """A message reaches its recipient."""

    delay_s: float


class MessageDropped(MessageRecord):
    """A message is lost in transit, or its recipient drops it."""

    reason: str


class MessageUsed(MessageRecord):
    """A round uses a message; its age is the recipient's round minus the stated round."""

    age: int


class MessageStatsRecord(MessageRecord):
    """Distances and weight of a used message, after the round's `estimate` (`output.telemetry`)."""

    weight: float | None
    distance_to_own: float | None
    distance_to_predicted: float | None


class FaultHead(RecordHead):
    """The first fields of a fault record: position in the scenario, `Fault.KIND`, "start" or "end"."""

    fault: int
    kind: str
    phase: str


class FaultRecord(FaultHead, total=False):
    """A fault starts or ends. The fields depend on the kind of fault; a plug-in may add others."""

    clients: list[int]
    links: list[list[int]]
    sides: list[list[int]]
    factor: float
    for_good: bool
    fresh: bool
    catch_up: bool


class FinalModel(RecordHead):
    """The hash of a client's model at the end of the run."""

    client: int
    blake2b: str


class RunFinished(RecordHead):
    """The last record: the status of the run and the message counts of summary.json."""

    status: str
    sent: int
    delivered: int
    lost: int
    in_flight: int
    used: int
    stale: int
    duplicate: int
    rejected: int
    left_over: int
    copied: int
    reordered: int
    bytes: int


RECORDS: Mapping[str, type[RecordHead]] = {
    "run_started": RunStarted,
    "training_started": TrainingStarted,
    "training_finished": TrainingFinished,
    "round_finished": RoundFinished,
    "estimate": EstimateRecord,
    "evaluated": Evaluated,
    "theory": Theory,
    "fault": FaultRecord,
    "message_sent": MessageSent,
    "message_copied": MessageCopied,
    "message_lost": MessageDropped,
    "message_delivered": MessageDelivered,
    "message_used": MessageUsed,
    "message_stats": MessageStatsRecord,
    "message_stale": MessageDropped,
    "message_duplicate": MessageDropped,
    "message_rejected": MessageDropped,
    "final_model": FinalModel,
    "run_finished": RunFinished,
}
"""All records by name; a run writes no others."""

OPEN = ("estimate", "fault")
"""Records that may have additional fields: diagnostics of a method, parameters of a fault."""
