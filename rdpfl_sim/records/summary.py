"""The message counts in summary.json, which must add up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.field import Field, fields_of
from rdpfl_sim.records.metrics import MOMENTS, STATISTICS, TARGETS, TESTS, RoundMeans
from rdpfl_sim.records.record_types import Consensus, RunFinished

OUTCOMES = ("used", "stale", "duplicate", "rejected")
"""Possible outcomes of a message in the mailbox of its recipient."""

MESSAGE_COUNTS = tuple(key for key in RunFinished.__annotations__ if key not in ("event", "time_s", "status"))
"""The keys of the section `messages`."""


def message_counts(
    sent: int, delivered: int, lost: int, in_flight: int, outcomes: Mapping[str, int], left_over: int
) -> dict[str, int]:
    """Return the numbers of messages by outcome.

    sent = delivered + lost + in_flight, delivered = used + stale + duplicate + rejected + left_over.
    """
    counts = {
        "sent": sent,
        "delivered": delivered,
        "lost": lost,
        "in_flight": in_flight,
        **{outcome: outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "left_over": left_over,
    }
    assert sent == delivered + lost + in_flight, f"messages went missing on links: {counts}"
    assert delivered == sum(outcomes.values()) + left_over, f"messages went missing in mailboxes: {counts}"
    return counts


BOOLEAN = "true or false"
"""The unit of keys that are not numbers."""

_QUANTILES = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile of",
    "p99": "99th percentile of",
    "max": "maximum",
}


def _number(unit: str, meaning: str) -> Field:
    """Return a number whose meaning is short enough for a label."""
    return Field(unit, meaning, meaning)


def _accuracies() -> Mapping[str, Field]:
    fields: dict[str, Field] = {}
    for group, test, statistic in product(("honest", "all"), TESTS, STATISTICS):
        words = f"{statistic.phrase} {test} accuracy of {group} clients"
        meaning = f"{words}; {statistic.direction}"
        fields[f"accuracy.{group}.{test}.{statistic.key}"] = Field("fraction", meaning, words)
    return fields


def _of_updated(key: str, field: Field) -> Mapping[str, Field]:
    """Return a key of the section `updated`, which exists if both moments are evaluated."""
    after = MOMENTS["updated"]
    return {
        f"updated.{key}": field._replace(meaning=f"{field.meaning}; {after}", words=f"{field.words} {after}")
    }


def _messages() -> Mapping[str, Field]:
    fields = fields_of(RunFinished)
    words = {name: f"messages {name.replace('_', ' ')}" for name in MESSAGE_COUNTS} | {"bytes": "data sent"}
    return {f"messages.{name}": fields[name]._replace(words=words[name]) for name in MESSAGE_COUNTS}


def _distribution(key: str, unit: str, meaning: str, words: str) -> Mapping[str, Field]:
    return {
        f"{key}.{name}": Field(unit, f"{phrase.removesuffix(' of')} of {meaning}", f"{phrase} {words}")
        for name, phrase in _QUANTILES.items()
    }


def _means(key: str, where: str, clients: str) -> Mapping[str, Field]:
    return {
        f"{key}.{name}": Field(field.unit, f"{field.meaning}; mean over {where}", f"{field.words}, {clients}")
        for name, field in fields_of(RoundMeans).items()
    }


def _rounds(kind: str, where: str, clients: str) -> Mapping[str, Field]:
    key = f"telemetry.rounds.{kind}"
    num = Field("count", where, f"number of rounds, {clients}")
    return {f"{key}.num": num, **_means(key, where, clients)}


def _messages_from(senders: str) -> Mapping[str, Field]:
    group, words = senders.lower(), f"{senders} messages"
    fields = {
        **{outcome: Field("count", outcome, f"{words} {outcome}") for outcome in OUTCOMES},
        "ignored": Field("fraction", "used ones with weight zero", f"share of {words} ignored"),
        "relative_weight": Field("ratio", "mean weight; 1 is an equal share", f"relative weight of {words}"),
    }
    whose = f"messages of {senders} clients to honest clients"
    return {
        f"telemetry.messages_from.{group}.{name}": field._replace(meaning=f"{whose}: {field.meaning}")
        for name, field in fields.items()
    }


def _consensus() -> Mapping[str, Field]:
    fields = fields_of(Consensus)
    words = {
        "round": "round of the latest average model",
        "accuracy": "global accuracy of the average model",
        "loss": "global loss of the average model",
        "distance": "consensus distance",
    }
    return {f"consensus.{name}": fields[name]._replace(words=words[name]) for name in words}


_THEORY_OF_A_CLIENT = {
    "gradient_norm": Field("norm of a gradient", "at the last evaluation", "gradient norm"),
    "mean_square_gradient": Field("squared norm", "left-hand side of eq. 18", "mean squared gradient norm"),
    "loss": Field("nats", "objective f at the last evaluation", "objective"),
    "L": Field("gradient per distance", "estimated smoothness; a lower bound", "estimated smoothness"),
    "G_g": _number("norm of a gradient", "estimated bound of stochastic gradients"),
    "sigma_u": _number("norm of a gradient", "estimated deviation of the direction u"),
    "gamma": Field("learning rate", "step size of the client", "step size"),
    "gamma_limit": Field("learning rate", "1 / (8 L)", "limit of the step size"),
    "gamma_is_small_enough": Field(BOOLEAN, "whether gamma is at most that", "step size small enough"),
    "bound": Field("squared norm", "right-hand side of eq. 18", "bound of the mean squared gradient norm"),
    "bound_holds": Field(BOOLEAN, "whether the left-hand side is at most that", "bound holds"),
}

_TIME_TO_ACCURACY = Field(
    "s",
    "simulated time at which the mean personal accuracy of honest clients first reached this value",
    "simulated time to accuracy <accuracy>",
)

SUMMARY_FIELDS: Mapping[str, Field] = {
    "schema": Field("number", "version of the file format", "schema"),
    "name": Field("text", "name of the scenario"),
    "status": Field("text", "`finished`, `out of time`, `interrupted` or `failed`"),
    "seed": Field("number", "seed of the scenario", "seed"),
    "rounds": Field("rounds", "rounds per client in the scenario", "rounds"),
    "rounds_done": Field("rounds", "smallest and largest number of finished rounds of a client"),
    "num_clients": Field("count", "clients, Byzantine ones included", "number of clients"),
    "byzantine": Field("ids", "Byzantine clients"),
    "method": Field("text", "method with the options that are not at their default"),
    "attack": Field("text", "attack with the options that are not at their default"),
    "topology": Field("text", "topology with the options that are not at their default"),
    "num_parameters": Field("count", "parameters of one model", "number of parameters"),
    "moment": Field(
        "text",
        "moment of every accuracy outside the section `updated`: `trained`, after local training, or "
        "`updated`, after the exchange (`evaluation.moments`)",
    ),
    **_accuracies(),
    **_messages(),
    "neighbourhood.byzantine_fraction.<client>": Field(
        "fraction",
        "Byzantine neighbours of an honest client",
        "share of Byzantine neighbours, client <client>",
    ),
    "neighbourhood.outside_threat_model": Field("ids", "honest clients for which this is at least one half"),
    "neighbourhood.isolated": Field("ids", "clients without neighbours"),
    "neighbourhood.num_components": _number("count", "connected parts of the graph"),
    **_distribution(
        "telemetry.delay_s", "s", "the time from sending to delivery (quantiles within 7 %)", "message delay"
    ),
    "telemetry.age.<age>": Field(
        "count",
        "used messages of this age in rounds; negative if senders are ahead",
        "used messages of age <age>",
    ),
    **_distribution(
        "telemetry.neighbour_share",
        "ratio",
        "`neighbour_share` over the rounds of honest clients (quantiles within 7 %)",
        "step due to neighbours",
    ),
    **_messages_from("honest"),
    **_messages_from("Byzantine"),
    "telemetry.false_rejections": Field(
        "fraction", "messages of honest clients that mailboxes rejected", "false rejections"
    ),
    "telemetry.too_old": Field(
        "fraction",
        "messages between honest clients that timing.staleness discarded, while their recipients had no "
        "newer one from the same sender; of those delivered",
        "share of messages too old",
    ),
    "telemetry.mailbox_full": Field(
        "fraction",
        "messages between honest clients that a full mailbox discarded; of those delivered",
        "share of messages in a full mailbox",
    ),
    **_rounds("all", "all rounds of honest clients", "honest clients"),
    **_rounds("clean", "rounds without a Byzantine message", "honest clients without a Byzantine message"),
    **_rounds("attacked", "rounds that used a Byzantine message", "honest clients with a Byzantine message"),
    "telemetry.num_trimmed_less": Field(
        "count",
        "rounds in which `trimmed_mean` had too few messages and cut fewer than ceil(trim n) per side",
        "number of rounds with too few messages to trim",
    ),
    "telemetry.by_hops.<hops>.num_clients": Field(
        "count", "honest clients at this distance to an attacker", "honest clients at distance <hops>"
    ),
    "telemetry.by_hops.<hops>.personal_accuracy": Field(
        "fraction",
        "their mean personal accuracy",
        "mean personal accuracy, honest clients at distance <hops>",
    ),
    **_means("telemetry.by_hops.<hops>", "their rounds", "honest clients at distance <hops>"),
    **_consensus(),
    "theory.num_judged": _number("count", "honest clients to which the theorem applies"),
    "theory.num_gamma_small_enough": Field(
        "count", "of these, clients with gamma <= 1 / (8 L)", "clients with a small enough step size"
    ),
    "theory.num_bound_holds": Field(
        "count", "of these, clients for which the bound holds", "clients for which the bound holds"
    ),
    **{
        f"theory.clients.<client>.{name}": field._replace(words=f"{field.words}, client <client>")
        for name, field in _THEORY_OF_A_CLIENT.items()
    },
    "num_faults": Field("count", "starts and ends of faults", "number of faults"),
    "simulated_s": Field("s", "simulated time at the end", "simulated time"),
    "time_to_accuracy_s.<accuracy>": _TIME_TO_ACCURACY,
    **{k: v for key, field in _accuracies().items() for k, v in _of_updated(key, field).items()},
    **_of_updated("time_to_accuracy_s.<accuracy>", _TIME_TO_ACCURACY),
    "wall.seconds": Field(
        "s", "wall-clock time, earlier sessions included; not part of the digest", "wall-clock time"
    ),
    "wall.device": Field("text", "device of the scenario, such as `cpu`"),
    "wall.trained_on": Field("text", "kind of device that computed the training"),
    "wall.threads": _number("count", "torch threads"),
    "digest": Field("hash", "hash of the records and the final models"),
    "warnings": Field("texts", "warnings about the scenario and the run"),
    "error": Field("text", "only after a failure: what happened"),
}
"""Every key of summary.json by its path.

`theory` and `consensus` exist only with these options, and `updated` only with `evaluation.moments = "both"`.
"""


class RoundRange(NamedTuple):
    """The smallest and the largest number of rounds that a client has finished, and the planned number.

    >>> str(RoundRange(12, 14, 20)), str(RoundRange(20, 20, 20))
    ('12 to 14 of 20', '20 of 20')
    """

    least: int
    most: int
    planned: int

    @classmethod
    def of_summary(cls, summary: JsonObject, planned: int) -> RoundRange | None:
        """Return the range in a summary, or None if the run is unfinished or has failed."""
        if "rounds_done" not in summary:
            return None
        least, most = summary["rounds_done"]
        return cls(least, most, planned)

    @property
    def is_complete(self) -> bool:
        """Whether every client has finished all rounds."""
        return self.least >= self.planned

    @property
    def done(self) -> str:
        """The numbers of finished rounds, such as `12 to 14`."""
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"

    def __str__(self) -> str:
        return f"{self.done} of {self.planned:,}"


UNITS = {"bytes_per_s": "bytes/s", "minutes": "min", "seconds": "s", "bytes": "bytes", "s": "s"}
"""Last words of a name and the unit that they state; the first match counts. Labels show only these units."""

_NUMBER = re.compile(r"(?<=\.)-?\d+(?=\.|$)")


class QuantityName(NamedTuple):
    """A quantity in words, and its unit; shares, accuracies and counts have none."""

    words: str
    unit: str = ""

    @property
    def label(self) -> str:
        """The words with a capital letter, and the unit in brackets."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.words[:1].upper()}{self.words[1:]}{unit}"


def _metric_names() -> Iterator[tuple[str, QuantityName]]:
    for key, field in SUMMARY_FIELDS.items():
        words, unit = field.words, field.unit
        name = QuantityName(words, unit if unit in UNITS.values() else "")
        if key.endswith("time_to_accuracy_s.<accuracy>"):
            for target in map(str, TARGETS):
                yield _insert(target, key), name._replace(words=_insert(target, words))
        elif words and unit != BOOLEAN:
            yield _insert("N", key), name


def _insert(value: str, text: str) -> str:
    """Replace the angle brackets in a key or in words by a value."""
    return re.sub(r"<\w+>", value, text)


METRIC_NAMES = dict(_metric_names())
"""The names of all numbers in summary.json by path; N replaces any client, age or distance."""


def metric_key(path: str) -> str:
    """Return the key in `METRIC_NAMES` of the path of a number in summary.json.

    >>> metric_key("telemetry.age.-2"), metric_key("time_to_accuracy_s.0.85")
    ('telemetry.age.N', 'time_to_accuracy_s.0.85')
    """
    return path if path in METRIC_NAMES else _NUMBER.sub("N", path)


def moment_of(path: str, headline: str) -> str | None:
    """Return the moment at which a number was measured, in words, or None; `headline` is `summary.moment`.

    >>> moment_of("accuracy.honest.personal.mean", "trained"), moment_of("messages.sent", "trained")
    ('after local training', None)
    """
    if path.startswith("updated."):
        return MOMENTS["updated"]
    depends = path.startswith(("accuracy.", "time_to_accuracy_s.")) or path.endswith(".personal_accuracy")
    return MOMENTS[headline] if depends else None


def metric_name(path: str, moments: Iterable[str] = ()) -> QuantityName:
    """Return the words and the unit of a number in summary.json; `moments` are those of the runs.

    >>> metric_name("accuracy.honest.personal.mean", ["trained"]).label
    'Mean personal accuracy of honest clients after local training'
    >>> metric_name("accuracy.honest.personal.worst").label
    'Worst personal accuracy of honest clients'
    >>> metric_name("time_to_accuracy_s.0.85"), metric_name("telemetry.age.-2").label
    (QuantityName(words='simulated time to accuracy 0.85', unit='s'), 'Used messages of age -2')
    """
    name = METRIC_NAMES.get(metric_key(path))
    if name is None:
        return name_from_path(path)
    number = _NUMBER.search(path)
    words = name.words if number is None else _insert(number[0], name.words)
    found = dict.fromkeys(moment_of(path, moment) for moment in moments)
    after = " or ".join(moment for moment in found if moment is not None and not words.endswith(moment))
    return name._replace(words=f"{words} {after}".rstrip())


def name_from_path(path: str) -> QuantityName:
    """Return the words of a dotted path; the end of its last key may state a unit.

    >>> name_from_path("queue.max_delay_s")
    QuantityName(words='queue max delay', unit='s')
    """
    *sections, key = path.split(".")
    words, unit = split_unit(key)
    return QuantityName(re.sub("[_. ]+", " ", " ".join([*sections, words])).strip(), unit)


def split_unit(key: str) -> tuple[str, str]:
    """Return a key without its unit, and the unit.

    >>> split_unit("mean_burst_s"), split_unit("up_bytes_per_s"), split_unit("seconds"), split_unit("alpha")
    (('mean_burst', 's'), ('up', 'bytes/s'), ('', 's'), ('alpha', ''))
    """
    for ending, unit in UNITS.items():
        if key == ending and key != "s":
            return "", unit
        if key.endswith(f"_{ending}"):
            return key.removesuffix(f"_{ending}"), unit
    return key, ""
