"""The files of the verified run folder, and the checks of its scenario, end and digest."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records import metrics
from rdpfl_sim.records.files import TOPOLOGY
from rdpfl_sim.records.metrics import SLACK, TARGETS, MetricsRow, selected_moments
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.record_types import (
    MessageDelivered,
    MessageDropped,
    MessageStatsRecord,
    MessageUsed,
    RoundFinished,
    RunStarted,
    Theory,
)
from rdpfl_sim.records.summary import OUTCOMES
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Checks
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD

UNFINISHED = "the run has no summary"


class VerifiedFolder:
    """Scenario, topology, provenance, metrics and summary of a run; the last three may be missing."""

    def __init__(self, folder: Path) -> None:
        self.reader = RunReader(folder)
        self.scenario = Scenario.of_run(folder)
        topology, num_clients = self.reader.read_topology(), self.scenario.clients.count
        try:
            self.edges: list[tuple[int, int]] = [(i, j) for i, j in topology["edges"]]
            self.byzantine = frozenset(topology["byzantine"])
        except (TypeError, ValueError) as error:
            raise RunError(f"{folder / TOPOLOGY} is damaged: {error}") from error
        clients = [*self.byzantine, *(client for edge in self.edges for client in edge)]
        is_valid = all(type(client) is int and 0 <= client < num_clients for client in clients)
        if topology["num_clients"] != num_clients or not is_valid:
            raise RunError(f"{folder / TOPOLOGY} is damaged: the scenario has {num_clients} clients")
        self.provenance = self.reader.read_provenance()
        self.summary = self.reader.read_summary()
        self.metrics = self.reader.read_metrics() if self.reader.has_metrics() else []


class FolderChecks:
    """Checks that the run is complete, and that scenario, topology and first record agree."""

    def __init__(self, checks: Checks, files: VerifiedFolder) -> None:
        self.complete = checks["complete"]
        self.scenario = checks["scenario"]
        self.files = files
        summary, provenance = files.summary, files.provenance
        if summary is None:
            self.complete.violated(None, "there is no summary.json: the run is running or was killed")
        elif "messages" not in summary:
            self.complete.violated(None, f"the run is {summary.get('status')}: {summary.get('error')}")
        if provenance is None:
            self.scenario.unchecked = "there is no provenance.json"
        elif provenance.get("scenario_hash") != files.scenario.hash:
            hashes = f"expected {provenance.get('scenario_hash')}, found {files.scenario.hash}"
            self.scenario.violated(None, f"scenario.toml has a different hash: {hashes}")

    def run_started(self, record: RunStarted, line: int) -> None:
        """Compare the first record with scenario and topology."""
        self.scenario.num_items += 2
        if record["seed"] != self.files.scenario.seed:
            self.scenario.violated(line, f"the scenario's seed is {self.files.scenario.seed}")
        if record["byzantine"] != sorted(self.files.byzantine):
            self.scenario.violated(line, f"topology.json has the Byzantine clients {[*self.files.byzantine]}")

    def compare_end(self, first_event: str | None, last_event: str | None, num_lines: int) -> None:
        """Check the first and the last record."""
        self.complete.num_items += 2
        if first_event != "run_started":
            self.complete.violated(1, "the first record is not run_started")
        if last_event != "run_finished":
            self.complete.violated(num_lines or None, "the last record is not run_finished")


class DigestCheck:
    """Recomputes the digest: a hash chain over all records but those of single messages."""

    def __init__(self, checks: Checks) -> None:
        self.check = checks["digest"]
        self.value = b""

    def add(self, line: bytes) -> None:
        """Add a record."""
        if not line.startswith(b'{"event":"message_'):
            self.check.num_items += 1
            self.value = blake2b(self.value + line, digest_size=32).digest()

    def compare(self, summary: JsonObject | None) -> None:
        """Compare the digest with the one in the summary."""
        found = self.value.hex()
        if summary is None or "digest" not in summary:
            self.check.unchecked = UNFINISHED
        elif summary["digest"] != found:
            recorded = str(summary["digest"])
            self.check.violated(None, f"the records have the digest {found[:16]}..., not {recorded[:16]}...")


MEANS = {
    "used_per_round": ("used", "rounds"),
    "mean_age": ("age", "used"),
    "clipped": ("clipped", "estimates"),
    "bounded": ("bounded", "estimates"),
    "byzantine_weight": ("weight", "weighed"),
    "neighbour_share": ("share", "shares"),
}
"""Numerator and denominator of each mean over rounds, as keys of the sums."""

OF_MESSAGES = ("mean_age", "byzantine_weight")
"""Means that require the records of all messages."""


class Sums(defaultdict[str, float]):
    """Sums by name, 0 if nothing was added."""

    def __init__(self) -> None:
        super().__init__(float)

    def add(self, values: Mapping[str, float]) -> None:
        """Add to several sums."""
        for name, value in values.items():
            self[name] += value


class DerivedTelemetry:
    """Adds up rounds, delays, and the outcomes of messages to honest clients."""

    def __init__(self, byzantine: frozenset[int], hops: Mapping[int, int], knows_messages: bool) -> None:
        self.byzantine, self.hops = byzantine, hops
        self.knows_messages = knows_messages
        """Whether the records contain all messages."""
        self.rounds: defaultdict[str, Sums] = defaultdict(Sums)
        """Sums over groups of rounds of honest clients: `all`, `clean`, `attacked`, and by hops."""
        self.recent: defaultdict[int, Sums] = defaultdict(Sums)
        """Sums over each client's rounds since its last evaluation."""
        self.messages = {"honest": Sums(), "byzantine": Sums()}
        """Messages to honest clients by kind of sender: numbers by outcome, and weights."""
        self.discarded: Counter[str] = Counter()
        """Messages between honest clients that were dropped, by reason."""
        self.ages: Counter[int] = Counter()
        self.num_delivered = 0
        """Number of messages that honest clients delivered to honest clients."""
        self.delays_s, self.shares = array("d"), array("d")

    def add_round(
        self,
        record: RoundFinished,
        used: Sequence[MessageUsed],
        diagnostics: Mapping[str, Any],
        stats: Sequence[MessageStatsRecord],
    ) -> None:
        """Add a round with its messages, its estimate and the statistics of its messages."""
        client, num_used = record["client"], record["num_used"]
        is_attacked = any(message["sender"] in self.byzantine for message in used)
        sums = {"rounds": 1.0, "used": num_used, "age": sum(message["age"] for message in used)}
        if "tau" in diagnostics:
            clips = {key: float(diagnostics.get(key) or 0) for key in ("clipped", "bounded")}
            sums |= {"estimates": 1.0, **clips}
        share = diagnostics.get("neighbour_share")
        if share is not None:
            sums |= {"shares": 1.0, "share": share}
        weights = [(one["sender"], one["weight"]) for one in stats if one["weight"] is not None]
        if not used or len(weights) < len(used):
            weights = []
        else:
            sums |= {"weighed": 1.0, "weight": sum(w for sender, w in weights if sender in self.byzantine)}
        self.recent[client].add(sums)
        if client in self.byzantine:
            return
        hops = [str(self.hops[client])] if client in self.hops else []
        for group in ("all", "attacked" if is_attacked else "clean", *hops):
            self.rounds[group].add(sums)
        if share is not None:
            self.shares.append(share)
        for message in used:
            self.ages[message["age"]] += 1
            self._of(message["sender"])["used"] += 1
        for sender, weight in weights:
            weighed = {"weighed": 1.0, "ignored": float(weight == 0), "weight": weight * num_used}
            self._of(sender).add(weighed)

    def message_delivered(self, record: MessageDelivered, line: int) -> None:
        """Add the delay of a message."""
        self.delays_s.append(record["delay_s"])
        self.num_delivered += self.byzantine.isdisjoint((record["sender"], record["recipient"]))

    def message_stale(self, record: MessageDropped, line: int) -> None:
        """Count a stale message."""
        self._dropped(record, "stale")

    def message_duplicate(self, record: MessageDropped, line: int) -> None:
        """Count a duplicate message."""
        self._dropped(record, "duplicate")

    def message_rejected(self, record: MessageDropped, line: int) -> None:
        """Count a rejected message."""
        self._dropped(record, "rejected")

    def of_evaluation(self, client: int) -> JsonObject:
        """Return the columns of metrics.csv that follow from the rounds since the previous call."""
        means = self._means(self.recent.pop(client, Sums()))
        return {"byzantine": int(client in self.byzantine), "hops": self.hops.get(client), **means}

    def summary(self) -> JsonObject:
        """Return the section `telemetry` of the summary, without what the records do not contain."""
        found: JsonObject = {
            "neighbour_share": _distribution(self.shares),
            "rounds": {"all": self._group("all")},
        }
        if not self.knows_messages:
            return found
        honest = self.messages["honest"]
        found["rounds"] |= {group: self._group(group) for group in ("clean", "attacked")}
        return {
            **found,
            "delay_s": _distribution(self.delays_s),
            "age": {str(age): num for age, num in self.ages.items()},
            "messages_from": {
                kind: {
                    **{outcome: sums[outcome] for outcome in OUTCOMES},
                    "ignored": _ratio(sums["ignored"], sums["weighed"]),
                    "relative_weight": _ratio(sums["weight"], sums["weighed"]),
                }
                for kind, sums in self.messages.items()
            },
            "false_rejections": _ratio(honest["rejected"], sum(honest[outcome] for outcome in OUTCOMES)),
            "too_old": _ratio(self.discarded[TOO_OLD], self.num_delivered),
            "mailbox_full": _ratio(self.discarded[MAILBOX_FULL], self.num_delivered),
        }

    def by_hops(self) -> JsonObject:
        """Return the means over the rounds of honest clients by distance to a Byzantine client."""
        return {hops: self._means(sums) for hops, sums in self.rounds.items() if hops.isdigit()}

    def _dropped(self, record: MessageDropped, outcome: str) -> None:
        if record["recipient"] not in self.byzantine:
            self._of(record["sender"])[outcome] += 1
            if record["sender"] not in self.byzantine:
                self.discarded[record["reason"]] += 1

    def _of(self, sender: int) -> Sums:
        return self.messages["byzantine" if sender in self.byzantine else "honest"]

    def _group(self, group: str) -> JsonObject:
        return {"num": self.rounds[group]["rounds"], **self._means(self.rounds[group])}

    def _means(self, sums: Sums) -> dict[str, float | None]:
        known = [name for name in MEANS if self.knows_messages or name not in OF_MESSAGES]
        return {name: _ratio(*(sums[key] for key in MEANS[name])) for name in known}


class DerivedTheory:
    """Collects the `theory` records of honest clients."""

    def __init__(self) -> None:
        self.points: defaultdict[int, list[Theory]] = defaultdict(list)

    def theory(self, record: Theory, line: int) -> None:
        """Add loss and gradient of a client."""
        self.points[record["client"]].append(record)

    def summary(self, recorded: JsonObject) -> JsonObject:
        """Return the section `theory`; verdicts follow from the constants and bounds in `recorded`."""
        clients = {str(client): self._verdict(client, recorded) for client in self.points}
        judged = [verdict for verdict in recorded["clients"].values() if "bound" in verdict]
        return {
            "num_judged": len(judged),
            "num_gamma_small_enough": sum(verdict["gamma_is_small_enough"] for verdict in judged),
            "num_bound_holds": sum(verdict["bound_holds"] for verdict in judged),
            "clients": clients,
        }

    def _verdict(self, client: int, recorded: JsonObject) -> JsonObject:
        points, verdict = self.points[client], recorded["clients"][str(client)]
        last, norms = points[-1], [point["gradient_norm"] for point in points[1:] or points]
        found: JsonObject = {"gradient_norm": last["gradient_norm"], "loss": last["loss"], "L": last["L"]}
        if None not in norms:
            found["mean_square_gradient"] = mean = sum(norm**2 for norm in norms if norm) / len(norms)
            if verdict.get("bound") is not None:
                found["bound_holds"] = mean <= verdict["bound"]
        if "gamma" in verdict and last["L"] is not None:
            found["gamma_is_small_enough"] = 8 * last["L"] * verdict["gamma"] <= 1
        return found


def of_metrics(
    rows: Iterable[MetricsRow], byzantine: frozenset[int], num_honest: int, moments: str
) -> JsonObject:
    """Return the numbers of the summary that follow from metrics.csv, with `evaluation.moments`."""
    rows = list(rows)
    latest = {row["client"]: row for row in rows}
    honest = [row for client, row in latest.items() if client not in byzantine]
    by_hops: defaultdict[str, list[MetricsRow]] = defaultdict(list)
    for row in honest:
        if row["hops"] is not None:
            by_hops[str(row["hops"])].append(row)
    headline, *others = (
        (
            moment,
            {
                "accuracy": {
                    group: {test: _statistics(_accuracies(members, moment, test)) for test in metrics.TESTS}
                    for group, members in (("honest", honest), ("all", [*latest.values()]))
                },
                "time_to_accuracy_s": _times_to_accuracy(rows, byzantine, num_honest, moment),
            },
        )
        for moment in selected_moments(moments)
    )
    return {
        "moment": headline[0],
        **headline[1],
        **dict(others),
        "telemetry": {
            "by_hops": {
                hops: {
                    "num_clients": len(members),
                    "personal_accuracy": _accuracies(members, headline[0]).mean(),
                }
                for hops, members in by_hops.items()
            }
        },
    }


def _times_to_accuracy(
    rows: Iterable[MetricsRow], byzantine: frozenset[int], num_honest: int, moment: str
) -> dict[str, float]:
    """Return the first time at which the mean over all honest clients is at least each target."""
    columns = (f"{moment}_time_s", f"{moment}_personal_accuracy")
    found = [cast("Mapping[str, Any]", row) for row in rows if row["client"] not in byzantine]
    changes: dict[float, dict[int, float]] = {}
    for row in found:
        time_s, value = (row[column] for column in columns)
        changes.setdefault(time_s, {})[row["client"]] = value
    values: dict[int, float] = {}
    times_s: dict[str, float] = {}
    for time_s in sorted(changes):
        values |= changes[time_s]
        mean = sum(values.values()) / num_honest
        times_s = {str(target): time_s for target in TARGETS if mean >= target - SLACK} | times_s
    return {str(target): times_s[str(target)] for target in TARGETS if str(target) in times_s}


def hops_from(clients: Iterable[int], neighbours: Sequence[Iterable[int]]) -> dict[int, int]:
    """Return the number of links from the nearest of some clients to each client that they reach."""
    hops = dict.fromkeys(clients, 0)
    queue = list(hops)
    for client in queue:
        for other in neighbours[client]:
            if other not in hops:
                hops[other] = hops[client] + 1
                queue.append(other)
    return hops


def _accuracies(rows: Iterable[MetricsRow], moment: str, test: str = "personal") -> NDArray[np.float64]:
    found = [cast("Mapping[str, float | None]", row)[f"{moment}_{test}_accuracy"] for row in rows]
    return np.array([value for value in found if value is not None])


def _statistics(values: NDArray[np.float64]) -> JsonObject | None:
    return {each.key: each.compute(values) for each in metrics.STATISTICS} if values.size else None


def _distribution(values: Sequence[float]) -> JsonObject | None:
    if not values:
        return None
    ordered = np.sort(values)
    places = {f"p{round(100 * q)}": max(ceil(q * len(ordered)) - 1, 0) for q in (0.5, 0.9, 0.99)}
    quantiles = {key: float(ordered[place]) for key, place in places.items()}
    return {"mean": float(ordered.mean()), **quantiles, "max": float(ordered[-1])}


def _ratio(amount: float, number: float) -> float | None:
    return amount / number if number else None
