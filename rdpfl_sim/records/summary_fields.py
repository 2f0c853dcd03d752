"""Unit and meaning of every key of summary.json, and the words of a label for every number.

The labels of figures, the known metrics of sweeps and the reference page are derived from this module.
A key in angle brackets stands for any key: `<client>` for the number of a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from rdpfl_sim.records.field import Field, fields_of
from rdpfl_sim.records.metrics_file import MetricsRow
from rdpfl_sim.records.record_types import RunFinished
from rdpfl_sim.records.statistics import STATISTICS, TESTS
from rdpfl_sim.records.summary_file import MESSAGE_COUNTS, OUTCOMES

BOOLEAN = "true or false"
"""The unit of keys that are not numbers."""

_MEANS = {
    "used_per_round": "messages used per round",
    "mean_age": "mean age of used messages (rounds)",
    "clipped": "share of rounds with clipping",
    "bounded": "share of rounds bounded by G_d",
    "byzantine_weight": "weight of Byzantine messages",
    "neighbour_share": "mean step due to neighbours",
}
"""Columns of metrics.csv that the summary has as means over rounds of honest clients, and their words."""

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
    fields = {}
    for group, test, statistic in product(("honest", "all"), TESTS, STATISTICS):
        words = f"{statistic.phrase} {test} accuracy of {group} clients"
        meaning = f"{words}; {statistic.direction}"
        fields[f"accuracy.{group}.{test}.{statistic.key}"] = Field("fraction", meaning, words)
    return fields


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
    columns = fields_of(MetricsRow)
    return {
        f"{key}.{name}": Field(
            columns[name].unit, f"{columns[name].meaning}; mean over {where}", f"{words}, {clients}"
        )
        for name, words in _MEANS.items()
    }


def _rounds(kind: str, where: str, clients: str) -> Mapping[str, Field]:
    key = f"telemetry.rounds.{kind}"
    num = Field("count", f"rounds: {where}", f"number of rounds, {clients}")
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
    **_rounds("clean", "those without a Byzantine message", "honest clients without a Byzantine message"),
    **_rounds("attacked", "those with one", "honest clients with a Byzantine message"),
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
    "theory.num_judged": _number("count", "honest clients to which the theorem applies"),
    "theory.num_gamma_small_enough": Field(
        "count", "clients of these with gamma <= 1 / (8 L)", "clients with a small enough step size"
    ),
    "theory.num_bound_holds": Field(
        "count", "clients of these for which the bound holds", "clients for which the bound holds"
    ),
    **{
        f"theory.clients.<client>.{name}": field._replace(words=f"{field.words}, client <client>")
        for name, field in _THEORY_OF_A_CLIENT.items()
    },
    "num_faults": Field("count", "starts and ends of faults", "number of faults"),
    "simulated_s": Field("s", "simulated time at the end", "simulated time"),
    "time_to_accuracy_s.<accuracy>": Field(
        "s",
        "simulated time at which the mean personal accuracy of honest clients first reached this value",
        "simulated time to accuracy <accuracy>",
    ),
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
"""Every key of summary.json by its path. `theory` exists only with `evaluation.theory = true`."""
