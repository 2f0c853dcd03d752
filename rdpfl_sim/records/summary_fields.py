"""Unit and meaning of every key of summary.json, for the reference pages.

A key in angle brackets stands for any key: `<client>` for the number of a client.
"""

from __future__ import annotations

from collections.abc import Mapping

from rdpfl_sim.records.field import Field, fields_of
from rdpfl_sim.records.metrics_file import MetricsRow
from rdpfl_sim.records.record_types import RunFinished
from rdpfl_sim.records.statistics import STATISTICS, TESTS
from rdpfl_sim.records.summary_file import MESSAGE_COUNTS, OUTCOMES

_MEANS = ("used_per_round", "mean_age", "clipped", "bounded", "byzantine_weight", "neighbour_share")
"""Columns of metrics.csv that the summary has as means over rounds of honest clients."""

_QUANTILES = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "max": "maximum",
}


def _accuracies() -> Mapping[str, Field]:
    return {
        f"accuracy.{group}.{test}.{statistic.key}": Field(
            "fraction", f"{statistic.phrase} {test} accuracy of {group} clients; {statistic.direction}"
        )
        for group in ("honest", "all")
        for test in TESTS
        for statistic in STATISTICS
    }


def _distribution(key: str, unit: str, meaning: str) -> Mapping[str, Field]:
    return {f"{key}.{name}": Field(unit, f"{words} of {meaning}") for name, words in _QUANTILES.items()}


def _means(key: str, where: str) -> Mapping[str, Field]:
    columns = fields_of(MetricsRow)
    return {
        f"{key}.{name}": Field(columns[name].unit, f"{columns[name].meaning}; mean over {where}")
        for name in _MEANS
    }


def _messages_from(group: str) -> Mapping[str, Field]:
    key, whose = f"telemetry.messages_from.{group}", f"messages of {group} clients to honest clients"
    return {
        **{f"{key}.{outcome}": Field("count", f"{whose}: {outcome}") for outcome in OUTCOMES},
        f"{key}.ignored": Field("fraction", f"{whose}: used ones with weight zero"),
        f"{key}.relative_weight": Field("ratio", f"{whose}: mean weight; 1 is an equal share"),
    }


SUMMARY_FIELDS: Mapping[str, Field] = {
    "schema": Field("number", "version of the file format"),
    "name": Field("text", "name of the scenario"),
    "status": Field("text", "`finished`, `out of time`, `interrupted` or `failed`"),
    "seed": Field("number", "seed of the scenario"),
    "rounds": Field("rounds", "rounds per client in the scenario"),
    "rounds_done": Field("rounds", "smallest and largest number of finished rounds of a client"),
    "num_clients": Field("count", "clients, Byzantine ones included"),
    "byzantine": Field("ids", "Byzantine clients"),
    "method": Field("text", "method with the options that are not at their default"),
    "attack": Field("text", "attack with the options that are not at their default"),
    "topology": Field("text", "topology with the options that are not at their default"),
    "num_parameters": Field("count", "parameters of one model"),
    **_accuracies(),
    **{f"messages.{name}": fields_of(RunFinished)[name] for name in MESSAGE_COUNTS},
    "neighbourhood.byzantine_fraction.<client>": Field(
        "fraction", "Byzantine neighbours of an honest client"
    ),
    "neighbourhood.outside_threat_model": Field("ids", "honest clients for which this is at least one half"),
    "neighbourhood.isolated": Field("ids", "clients without neighbours"),
    "neighbourhood.num_components": Field("count", "connected parts of the graph"),
    **_distribution("telemetry.delay_s", "s", "the time from sending to delivery (quantiles within 7 %)"),
    "telemetry.age.<age>": Field(
        "count", "used messages of this age in rounds; negative if senders are ahead"
    ),
    **_distribution(
        "telemetry.neighbour_share",
        "ratio",
        "`neighbour_share` over the rounds of honest clients (quantiles within 7 %)",
    ),
    **_messages_from("honest"),
    **_messages_from("byzantine"),
    "telemetry.false_rejections": Field("fraction", "messages of honest clients that mailboxes rejected"),
    **{
        key: field
        for kind, where in {
            "all": "all rounds of honest clients",
            "clean": "those without a Byzantine message",
            "attacked": "those with one",
        }.items()
        for key, field in {
            f"telemetry.rounds.{kind}.num": Field("count", f"rounds: {where}"),
            **_means(f"telemetry.rounds.{kind}", where),
        }.items()
    },
    "telemetry.num_trimmed_less": Field(
        "count",
        "rounds in which `trimmed_mean` had too few messages and cut fewer than ceil(trim n) per side",
    ),
    "telemetry.by_hops.<hops>.num_clients": Field("count", "honest clients at this distance to an attacker"),
    "telemetry.by_hops.<hops>.personal_accuracy": Field("fraction", "their mean personal accuracy"),
    **_means("telemetry.by_hops.<hops>", "their rounds"),
    "theory.num_judged": Field("count", "honest clients to which the theorem applies"),
    "theory.num_gamma_small_enough": Field("count", "clients of these with gamma <= 1 / (8 L)"),
    "theory.num_bound_holds": Field("count", "clients of these for which the bound holds"),
    "theory.clients.<client>.gradient_norm": Field("norm of a gradient", "at the last evaluation"),
    "theory.clients.<client>.mean_square_gradient": Field("squared norm", "left-hand side of eq. 18"),
    "theory.clients.<client>.loss": Field("nats", "objective f at the last evaluation"),
    "theory.clients.<client>.L": Field("gradient per distance", "estimated smoothness; a lower bound"),
    "theory.clients.<client>.G_g": Field("norm of a gradient", "estimated bound of stochastic gradients"),
    "theory.clients.<client>.sigma_u": Field("norm of a gradient", "estimated deviation of the direction u"),
    "theory.clients.<client>.gamma": Field("learning rate", "step size of the client"),
    "theory.clients.<client>.gamma_limit": Field("learning rate", "1 / (8 L)"),
    "theory.clients.<client>.gamma_is_small_enough": Field("true or false", "whether gamma is at most that"),
    "theory.clients.<client>.bound": Field("squared norm", "right-hand side of eq. 18"),
    "theory.clients.<client>.bound_holds": Field(
        "true or false", "whether the left-hand side is at most that"
    ),
    "num_faults": Field("count", "starts and ends of faults"),
    "simulated_s": Field("s", "simulated time at the end"),
    "time_to_accuracy_s.<accuracy>": Field(
        "s", "simulated time at which the mean personal accuracy of honest clients first reached this value"
    ),
    "wall.seconds": Field("s", "wall-clock time, earlier sessions included; not part of the digest"),
    "wall.device": Field("text", "device of the scenario, such as `cpu`"),
    "wall.trained_on": Field("text", "kind of device that computed the training"),
    "wall.threads": Field("count", "torch threads"),
    "digest": Field("hash", "hash of the records and the final models"),
    "warnings": Field("texts", "warnings about the scenario and the run"),
    "error": Field("text", "only after a failure: what happened"),
}
"""Every key of summary.json by its path. `theory` exists only with `evaluation.theory = true`."""
