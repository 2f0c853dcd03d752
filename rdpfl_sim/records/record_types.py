"""The records of events.jsonl, with the order and the types of their fields.

Records are flat JSON objects, one per line. `verify`, `results` and the reference use these definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypedDict

from rdpfl_sim.records.field import Field, Ratio


class RecordHead(TypedDict):
    """The first fields of every record: its name and its simulated time."""

    event: Annotated[str, Field("text", "name of the record")]
    time_s: Annotated[float, Field("s", "simulated time since the start of the run")]


class RunStarted(RecordHead):
    """The first record."""

    schema: Annotated[int, Field("number", "version of the file format")]
    seed: Annotated[int, Field("number", "seed of the scenario")]
    num_parameters: Annotated[int, Field("count", "parameters of one model")]
    byzantine: Annotated[list[int], Field("ids", "Byzantine clients")]


class RoundRecord(RecordHead):
    """A record of a client's round."""

    client: Annotated[int, Field("id", "client, counted from 0")]
    round: Annotated[int, Field("rounds", "round of the client, counted from 1")]


class TrainingStarted(RoundRecord):
    """A client starts its local training."""

    duration_s: Annotated[float, Field("s", "simulated duration of the local training")]


class TrainingFinished(RoundRecord):
    """A client ends its local training."""

    loss: Annotated[float | None, Field("nats", "mean cross-entropy over the steps of the local training")]
    num_steps: Annotated[int, Field("count", "SGD steps")]


class RoundFinished(RoundRecord):
    """A client stops waiting and uses its messages. One `message_used` record per message follows."""

    num_used: Annotated[int, Field("count", "messages that the round uses")]
    max_age: Annotated[
        int | None, Field("rounds", "age of the oldest of them; positive if it is from an earlier round")
    ]


NeighbourShare: TypeAlias = Annotated[
    float | None,
    Field(
        "ratio",
        "distance that neighbours moved the model, divided by that of local training",
        "mean step due to neighbours",
        heading="neighbour step",
    ),
    Ratio("neighbour_share", "num_shares"),
]


class EstimateRecord(RoundRecord, total=False):
    """The method's diagnostics of a finished round. The fields depend on the method; it may add others.

    The record is written before the model of the round is evaluated, and no later than the end of the
    client's next training, a crash or the end of the run. A run that is interrupted earlier does not have the
    record until it is resumed. A method without diagnostics writes no estimate.
    """

    u_norm: Annotated[
        float | None,
        Field("norm of a mean gradient", "|u|, length of the own direction"),
    ]
    d_norm: Annotated[
        float | None,
        Field("norm of a mean gradient", "|d|, length of the direction taken from neighbours"),
    ]
    neighbour_share: NeighbourShare
    delta_norm: Annotated[
        float | None,
        Field("norm of a mean gradient", "|Δ|, deviation of the aggregate from the prediction"),
    ]
    beta: Annotated[
        float | None,
        Field("gradient per distance", "β, coefficient of the prediction; either sign"),
    ]
    tau: Annotated[float | None, Field("norm of a mean gradient", "τ, threshold of the clip")]
    clipped: Annotated[bool | None, Field("true or false", "whether the deviation was clipped to tau")]
    bounded: Annotated[bool | None, Field("true or false", "whether the result was clipped to G_d")]


PersonalAccuracy: TypeAlias = Annotated[
    float | None,
    Field("fraction", "accuracy on test data with the label mix of the client", heading="personal accuracy"),
]
PersonalLoss: TypeAlias = Annotated[
    float | None, Field("nats", "mean cross-entropy on these data", heading="loss")
]
GlobalAccuracy: TypeAlias = Annotated[
    float | None, Field("fraction", "accuracy on test data of all classes", heading="global accuracy")
]
GlobalLoss: TypeAlias = Annotated[float | None, Field("nats", "mean cross-entropy on these data")]
ValidationAccuracy: TypeAlias = Annotated[
    float | None,
    Field(
        "fraction",
        "accuracy on the validation examples of the client (`evaluation.validation_fraction`)",
        heading="validation accuracy",
    ),
]
ValidationLoss: TypeAlias = Annotated[float | None, Field("nats", "mean cross-entropy on these data")]


class Scores(TypedDict):
    """The result of the evaluation of one model; None if a value was not measured."""

    personal_accuracy: PersonalAccuracy
    personal_loss: PersonalLoss
    global_accuracy: GlobalAccuracy
    global_loss: GlobalLoss
    validation_accuracy: ValidationAccuracy
    validation_loss: ValidationLoss


class TrainedScores(TypedDict):
    """The evaluation of a model after local training; None if `evaluation.moments` omits it."""

    trained_time_s: Annotated[
        float | None, Field("s", "end of the last local training; 0 for an initial model")
    ]
    trained_personal_accuracy: PersonalAccuracy
    trained_personal_loss: PersonalLoss
    trained_global_accuracy: GlobalAccuracy
    trained_global_loss: GlobalLoss


class UpdatedScores(TypedDict):
    """The evaluation of a model after the exchange; None if `evaluation.moments` omits it."""

    updated_time_s: Annotated[
        float | None, Field("s", "end of the last finished round; 0 for an initial model")
    ]
    updated_personal_accuracy: PersonalAccuracy
    updated_personal_loss: PersonalLoss
    updated_global_accuracy: GlobalAccuracy
    updated_global_loss: GlobalLoss


class ValidationScores(TypedDict, total=False):
    """The result on the validation examples of a client, in runs with `evaluation.validation_fraction`."""

    trained_validation_accuracy: ValidationAccuracy
    trained_validation_loss: ValidationLoss
    updated_validation_accuracy: ValidationAccuracy
    updated_validation_loss: ValidationLoss


class Evaluated(RoundRecord, TrainedScores, UpdatedScores, ValidationScores):
    """A client's models are evaluated; `round` is the client's last finished round.

    `trained_*` belongs to the model after the last local training: that of this round or, if the client has
    stopped during its next round, possibly that of the next round. `updated_*` belongs to the model after the
    exchange of this round. A client that has started afresh has its new initial model in both. The record is
    written at the end of the round or, for the last evaluation of a client, at the end of the run. The
    validation scores exist only in runs with `evaluation.validation_fraction`.
    """


class Consensus(RecordHead):
    """The average of the honest clients' models after the exchange (`evaluation.consensus`).

    The models are those of their latest evaluations. The average is evaluated at the start, when the slowest
    honest client has finished a round that is due for evaluation, and at the end of the run.
    """

    round: Annotated[int, Field("rounds", "smallest round of an honest client at its latest evaluation")]
    accuracy: Annotated[float, Field("fraction", "accuracy of the average model on the global test set")]
    loss: Annotated[float | None, Field("nats", "mean cross-entropy on these data")]
    distance: Annotated[
        float | None,
        Field("norm of a model", "consensus distance: mean distance of the models from their average"),
    ]


class Theory(RoundRecord):
    """Loss and gradient of a client's objective after the exchange (`evaluation.theory`)."""

    loss: Annotated[float | None, Field("nats", "objective f on all training data of the client")]
    gradient_norm: Annotated[float | None, Field("norm of a gradient", "length of the gradient of f")]
    L: Annotated[
        float | None,
        Field(
            "gradient per distance", "largest slope of the gradient so far; a lower bound of the smoothness L"
        ),
    ]


class MessageRecord(RecordHead):
    """A record of a message; `round` is the round stated by the sender."""

    message: Annotated[int, Field("id", "number of the message")]
    sender: Annotated[int, Field("id", "client that sends it")]
    recipient: Annotated[int, Field("id", "client that receives it")]
    round: Annotated[int, Field("rounds", "round that the sender states")]


class MessageSent(MessageRecord):
    """A client sends a message; `true_round` is the sender's current round."""

    true_round: Annotated[int, Field("rounds", "round that the sender is in")]
    size_bytes: Annotated[float, Field("bytes", "size of the payload, divided by `network.compression`")]


class MessageCopied(MessageRecord):
    """The network duplicates the message `original`."""

    original: Annotated[int, Field("id", "number of the message that was copied")]


class MessageDelivered(MessageRecord):
    """A message reaches its recipient."""

    delay_s: Annotated[float, Field("s", "time from sending to delivery")]


class MessageDropped(MessageRecord):
    """The end of a message that no round uses."""

    reason: Annotated[str, Field("text", "why it was dropped")]


class MessageLost(MessageDropped):
    """A message is lost in transit.

    The reason is `loss` or a fault: `link is down`, `partition`, `recipient is down`, `sender is down`. With
    a transport that repeats messages it is `all attempts failed`.
    """


class MessageStale(MessageDropped):
    """A valid message is discarded by its recipient, because it is old or there is a newer one.

    The reasons are `too old` (`timing.staleness`), `mailbox full` (`timing.mailbox_per_sender`), `newer
    message chosen`, `newer message already used`, `no longer a neighbour` and `recipient restarted with a new
    model`.
    """


class MessageDuplicate(MessageDropped):
    """A valid message is discarded by its recipient, which has one with the `same sender and round`."""


class MessageRejected(MessageDropped):
    """An invalid message is rejected by its recipient.

    The reasons are `unknown sender`, `no such round`, `wrong shape or type` and `not finite`.
    """


class MessageUsed(MessageRecord):
    """A round uses a message; its age is the recipient's round minus the stated round."""

    age: Annotated[
        int, Field("rounds", "round of the recipient minus stated round; negative if the sender is ahead")
    ]


class MessageStatsRecord(MessageRecord):
    """Distances and weight of a used message, after the round's `estimate` (`output.telemetry`)."""

    weight: Annotated[float | None, Field("fraction", "weight of the message in the aggregate")]
    distance_to_own: Annotated[
        float | None, Field("norm of the payload", "distance to the own update of the recipient")
    ]
    distance_to_predicted: Annotated[
        float | None, Field("norm of the payload", "distance to the predicted direction")
    ]


class FaultHead(RecordHead):
    """The first fields of a fault record: position in the scenario, `Fault.KIND`, "start" or "end"."""

    fault: Annotated[int, Field("number", "position in the list `faults`, counted from 0")]
    kind: Annotated[str, Field("text", "kind of the fault, such as `crash`")]
    phase: Annotated[str, Field("text", "`start` or `end`")]


class FaultRecord(FaultHead, total=False):
    """A fault starts or ends. The fields depend on the kind of fault; a plug-in may add others."""

    clients: Annotated[list[int], Field("ids", "clients that are affected")]
    links: Annotated[list[list[int]], Field("pairs of ids", "links that are affected")]
    sides: Annotated[list[list[int]], Field("lists of ids", "groups of clients that a partition separates")]
    factor: Annotated[float, Field("ratio", "factor of the training time; above 1 is slower")]
    for_good: Annotated[bool, Field("true or false", "whether the clients never come back")]
    fresh: Annotated[bool, Field("true or false", "whether they come back with a new model")]
    catch_up: Annotated[
        bool, Field("true or false", "whether they resume in the latest round among their neighbours")
    ]


class FinalModel(RecordHead):
    """The hash of a client's model at the end of the run: the model that the headline accuracy measures."""

    client: Annotated[int, Field("id", "client, counted from 0")]
    blake2b: Annotated[str, Field("hash", "hash of the parameters")]


class RunFinished(RecordHead):
    """The last record: the status of the run and the message counts of summary.json."""

    status: Annotated[str, Field("text", "`finished`, `out of time`, `interrupted` or `failed`")]
    sent: Annotated[int, Field("count", "messages sent, copies included")]
    delivered: Annotated[int, Field("count", "messages that reached their recipient")]
    lost: Annotated[int, Field("count", "messages lost in transit")]
    in_flight: Annotated[int, Field("count", "messages in transit at the end")]
    used: Annotated[int, Field("count", "delivered messages that a round used")]
    stale: Annotated[int, Field("count", "delivered messages that were too late")]
    duplicate: Annotated[
        int, Field("count", "delivered messages with the sender and round of an earlier message")
    ]
    rejected: Annotated[int, Field("count", "delivered messages that were invalid")]
    left_over: Annotated[int, Field("count", "delivered messages unread at the end")]
    copied: Annotated[int, Field("count", "copies made by the network")]
    reordered: Annotated[int, Field("count", "messages that overtook an earlier one on their link")]
    bytes: Annotated[int, Field("bytes", "bytes sent, repetitions included")]


RECORDS: Mapping[str, type[RecordHead]] = {
    "run_started": RunStarted,
    "training_started": TrainingStarted,
    "training_finished": TrainingFinished,
    "round_finished": RoundFinished,
    "estimate": EstimateRecord,
    "evaluated": Evaluated,
    "theory": Theory,
    "consensus": Consensus,
    "fault": FaultRecord,
    "message_sent": MessageSent,
    "message_copied": MessageCopied,
    "message_lost": MessageLost,
    "message_delivered": MessageDelivered,
    "message_used": MessageUsed,
    "message_stats": MessageStatsRecord,
    "message_stale": MessageStale,
    "message_duplicate": MessageDuplicate,
    "message_rejected": MessageRejected,
    "final_model": FinalModel,
    "run_finished": RunFinished,
}
"""All records by name; a run writes no others."""

MESSAGE_PREFIX = b'{"event":"message_'
"""The beginning of the line of a message record."""

OPEN = ("estimate", "fault")
"""Records that may have additional fields: diagnostics of a method, parameters of a fault."""

OTHER_DIAGNOSTICS: Mapping[str, Field] = {
    "moved": Field("norm of a model", "distance that neighbours moved the model"),
    "num_accepted": Field("count", "messages with a weight above zero"),
    "num_clipped": Field("count", "messages that were clipped"),
    "density": Field("fraction", "share of parameters in the mask of the client"),
}
"""Fields of `estimate` that only some built-in methods have."""
