import csv
import json
import signal
from pathlib import Path

import pytest
import torch

from rdpfl_sim import Result, Scenario, ScenarioError, simulate
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.toml import read_toml
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario

LOSSY = {
    "adversary": {"attack": "sign_flip", "fraction": 0.34},
    "network": {"latency": "exponential", "loss": {"name": "bernoulli", "probability": 0.3}},
    "timing": {"wait": {"name": "deadline", "seconds": 0.2}, "compute": "lognormal", "staleness": "drop"},
}


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_run_folder_contains_every_record_of_the_run(tmp_path: Path) -> None:
    result = simulate(small_scenario(name="demo", **LOSSY), tmp_path)
    assert result.folder is not None
    assert result.folder.parent == tmp_path
    assert result.folder.name.startswith("demo-")
    names = {path.name for path in result.folder.iterdir()}
    assert names == {
        *("scenario.toml", "provenance.json", "topology.json"),
        *("events.jsonl", "metrics.csv", "summary.json"),
    }
    assert json.loads((result.folder / "summary.json").read_text())["digest"] == result.summary["digest"]
    assert Scenario.load(result.folder / "scenario.toml") == small_scenario(name="demo", **LOSSY)
    rows = list(csv.DictReader((result.folder / "metrics.csv").open()))
    assert len(rows) == 6 * 3, "every client at rounds 0, 2 and 4"


def test_scenario_of_a_run_folder_states_every_option_so_that_another_default_cannot_change_it(
    tmp_path: Path,
) -> None:
    folder = simulate(small_scenario(rounds=1), tmp_path).folder
    assert folder is not None
    stated = read_toml(folder / "scenario.toml")
    assert stated["timing"]["staleness"] == {"name": "keep", "max_age": 5}
    defaults = Scenario.from_dict({}).to_dict()
    for section in ("training", "network", "timing", "evaluation", "output"):
        assert stated[section].keys() == defaults[section].keys()


def test_every_line_is_flat_and_has_its_simulated_time_in_order(tmp_path: Path) -> None:
    lines = events(simulate(small_scenario(**LOSSY), tmp_path).folder)
    times = [line["time_s"] for line in lines]
    assert times == sorted(times)
    assert not any(isinstance(value, dict) for line in lines for value in line.values())
    kinds = {line["event"] for line in lines}
    assert {"run_started", "training_started", "training_finished", "message_sent", "message_lost"} <= kinds
    assert {"message_delivered", "message_used", "round_finished", "evaluated", "run_finished"} <= kinds
    finished = next(line for line in lines if line["event"] == "round_finished")
    assert finished.keys() == {"event", "time_s", "client", "round", "num_used", "max_age"}
    estimate = next(line for line in lines if line["event"] == "estimate" and "delta_norm" in line)
    assert {"beta", "tau", "delta_norm", "d_norm", "clipped", "bounded"} <= estimate.keys()


def test_message_accounting_adds_up_and_agrees_with_the_events(tmp_path: Path) -> None:
    result = simulate(small_scenario(**LOSSY), tmp_path)
    lines, account = events(result.folder), result.summary["messages"]
    for outcome in ("sent", "lost", "delivered", "used", "stale", "duplicate", "rejected"):
        assert sum(line["event"] == f"message_{outcome}" for line in lines) == account[outcome], outcome
    assert account["sent"] == account["delivered"] + account["lost"] + account["in_flight"]
    outcomes = ("used", "stale", "duplicate", "rejected", "left_over")
    assert account["delivered"] == sum(account[outcome] for outcome in outcomes)
    assert account["lost"] > 0
    assert account["stale"] > 0


def test_rounds_with_too_few_messages_for_the_trimmed_mean_are_counted_and_warned_of(tmp_path: Path) -> None:
    few = simulate(small_scenario(method={"name": "direct", "aggregator": "trimmed_mean"}, **LOSSY), tmp_path)
    honest = set(range(6)) - set(few.summary["byzantine"])
    lines = [line for line in events(few.folder) if line["event"] == "round_finished"]
    num_used = [line["num_used"] for line in lines if line["client"] in honest]
    # ceil(0.3 n) exceeds (n - 1) // 2 for n = 1, 2 and 4.
    expected = sum(num in (1, 2, 4) for num in num_used)
    assert 0 < expected < len(num_used)
    assert few.summary["telemetry"]["num_trimmed_less"] == expected
    assert few.summary["warnings"][-1] == (
        f"in {expected} of {len(num_used)} rounds of honest clients, too few messages arrived for the "
        "trimmed mean: it removed fewer than ceil(trim n) of n at each end"
    )
    other = simulate(small_scenario(method={"name": "direct", "aggregator": "median"}, **LOSSY))
    assert other.summary["telemetry"]["num_trimmed_less"] == 0
    assert not any("trimmed" in warning for warning in other.summary["warnings"])


LATE = {
    "clients": {"count": 6},
    "topology": "complete",
    "adversary": {"attack": "sign_flip", "fraction": 0.2},
    "network": {"latency": {"name": "exponential", "mean_s": 0.5}},
}
DISCARDED = (
    "more than a fifth of the messages that honest clients delivered to honest clients were discarded: "
)


def discarded(summary: dict) -> list[str]:
    """Return the warnings about discarded messages, without the words that all of them have."""
    return [text.removeprefix(DISCARDED) for text in summary["warnings"] if text.startswith(DISCARDED)]


def between_honest(result: Result, name: str, reason: str | None = None) -> int:
    """Return the number of recorded messages between honest clients with this outcome."""
    byzantine = result.summary["byzantine"]
    return sum(
        line["event"] == f"message_{name}"
        and line["sender"] not in byzantine
        and line["recipient"] not in byzantine
        and line.get("reason") == reason
        for line in events(result.folder)
    )


@pytest.mark.parametrize("message_events", [1.0, 0.5, 0.0])
def test_discarding_more_than_a_fifth_as_too_old_causes_a_warning(
    tmp_path: Path, message_events: float
) -> None:
    timing = {"wait": {"name": "deadline", "seconds": 0.2}, "staleness": "drop", "compute": "lognormal"}
    full = simulate(small_scenario(**LATE, timing=timing), tmp_path)
    delivered, old = between_honest(full, "delivered"), between_honest(full, "stale", "too old")
    assert old > delivered / 5
    assert discarded(full.summary) == [f"{old} of {delivered} as too old (timing.staleness)"]
    assert full.summary["telemetry"]["too_old"] == old / delivered
    some = simulate(
        small_scenario(**LATE, timing=timing, output={"message_events": message_events}), tmp_path
    )
    assert discarded(some.summary) == discarded(full.summary)
    assert not any(check.outcome == "violated" for check in verify(some.folder))
    kept = simulate(small_scenario(**LATE, timing={**timing, "staleness": "keep"}))
    assert kept.summary["telemetry"]["too_old"] <= 0.2
    assert discarded(kept.summary) == []


@pytest.mark.parametrize("prefer", ["round", "newest"])
def test_discarding_because_mailboxes_are_full_causes_a_warning_unless_a_newer_message_is_used_anyway(
    tmp_path: Path, prefer: str
) -> None:
    slow = {"name": "list", "seconds": [1.0, 1.0, 1.0, 1.0, 100.0, 100.0]}
    timing = {"wait": "none", "compute": slow, "mailbox_per_sender": 2, "prefer": prefer}
    result = simulate(small_scenario(**LATE, rounds=40, timing=timing), tmp_path)
    delivered, full = between_honest(result, "delivered"), between_honest(result, "stale", "mailbox full")
    assert full > delivered / 5
    assert result.summary["telemetry"]["mailbox_full"] == full / delivered
    expected = f"{full} of {delivered} because a mailbox was full (timing.mailbox_per_sender)"
    assert discarded(result.summary) == ([expected] if prefer == "round" else [])
    assert not any(check.outcome == "violated" for check in verify(result.folder))


def test_nothing_is_used_before_it_is_sent(tmp_path: Path) -> None:
    lines = events(simulate(small_scenario(**LOSSY), tmp_path).folder)
    sent = {line["message"]: line["time_s"] for line in lines if line["event"] == "message_sent"}
    arrived = {line["message"]: line["time_s"] for line in lines if line["event"] == "message_delivered"}
    used = {line["message"]: line["time_s"] for line in lines if line["event"] == "message_used"}
    assert all(sent[m] < arrived[m] <= used[m] for m in used)


def test_recording_only_some_messages_does_not_change_the_run(tmp_path: Path) -> None:
    full = simulate(small_scenario(**LOSSY), tmp_path)
    thin = simulate(small_scenario(output={"message_events": 0.3}, **LOSSY), tmp_path)
    none = simulate(small_scenario(output={"message_events": 0.0}, **LOSSY), tmp_path)
    silent = simulate(small_scenario(output={"events": False}, **LOSSY), tmp_path)
    assert len({r.summary["digest"] for r in (full, thin, none, silent)}) == 1
    counts = [sum("message" in line for line in events(r.folder)) for r in (full, thin, none)]
    assert counts[0] > counts[1] > counts[2] == 0
    traced = {line["message"] for line in events(thin.folder) if "message" in line}
    whole = [line for line in events(full.folder) if line.get("message") in traced]
    assert [line for line in events(thin.folder) if "message" in line] == whole, (
        "a message is kept whole or not at all"
    )
    assert (silent.folder / "events.jsonl").read_bytes() == b""


def test_summary_reports_accuracy_over_clients() -> None:
    result = simulate(small_scenario(**LOSSY))
    last = {row["client"]: row for row in result.metrics}
    honest = [row["trained_personal_accuracy"] for row in last.values() if not row["byzantine"]]
    scores = result.summary["accuracy"]["honest"]["personal"]
    assert scores["mean"] == pytest.approx(sum(honest) / len(honest))
    assert scores["worst"] == min(honest)
    assert len(result.summary["byzantine"]) == 2
    assert result.folder is None


def test_disconnected_graphs_and_isolated_clients_are_reported_without_an_error(tmp_path: Path) -> None:
    graph = tmp_path / "graph.edgelist"
    graph.write_text("0 1\n1 2\n")
    scenario = small_scenario(topology={"name": "file", "path": str(graph)}, adversary={"ids": [1]})
    summary = simulate(scenario).summary
    assert summary["neighbourhood"]["isolated"] == [3, 4, 5]
    assert summary["neighbourhood"]["num_components"] == 4
    assert summary["neighbourhood"]["byzantine_fraction"] == {0: 1.0, 2: 1.0, 3: 0.0, 4: 0.0, 5: 0.0}
    assert summary["neighbourhood"]["outside_threat_model"] == [0, 2]
    assert "clients without neighbours train locally: 3, 4, 5" in summary["warnings"]


def test_a_single_client_learns() -> None:
    summary = simulate(small_scenario(clients={"count": 1}, topology="complete", rounds=20)).summary
    assert summary["accuracy"]["honest"]["personal"]["mean"] > 0.5


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"topology": {"name": "k_regular", "k": 6}}, "topology.k"),
        ({"topology": {"name": "file", "path": "nowhere.graphml"}}, "topology.path"),
        ({"partition": {"name": "iid", "min_samples": 1000}}, "partition.min_samples"),
        ({"model": "cnn"}, "model"),
        ({"method": {"name": "direct", "step": 0.5, "coefficient": 2.0}}, "method.coefficient"),
        ({"data": {"name": "synthetic", "shape": [2, 2]}}, "data.shape"),
    ],
)
def test_invalid_scenario_is_rejected_before_any_file_is_written(tmp_path: Path, changes, path) -> None:
    with pytest.raises(ScenarioError) as caught:
        simulate(small_scenario(**changes), tmp_path)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert list(tmp_path.iterdir()) == []


def test_run_can_be_limited_in_simulated_time() -> None:
    summary = simulate(small_scenario(rounds=1000, timing={"max_time_s": 5.0})).summary
    assert summary["simulated_s"] == 5.0
    assert summary["status"] == "out of time"
    assert summary["rounds_done"] == [4, 4]


class Interrupting:
    """Sends SIGINT after a number of local trainings."""

    def __init__(self, num_trainings: int) -> None:
        self.num_trainings = num_trainings
        self.has_sent = False

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        if rounds_done == self.num_trainings and not self.has_sent:
            self.has_sent = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_signal_during_the_last_event_does_not_interrupt_the_run() -> None:
    progress = Interrupting(num_trainings=6 * 4)  # the last one
    result = simulate(small_scenario(method="local"), progress=progress)
    assert progress.has_sent
    assert result.summary["status"] == "finished"
    assert result.summary["rounds_done"] == [4, 4]


@pytest.mark.usefixtures("ctrl_c")
def test_signal_after_the_last_event_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Simulation.finish

    def interrupt_and_finish(simulation: Simulation) -> Result:
        signal.raise_signal(signal.SIGINT)
        return finish(simulation)

    monkeypatch.setattr(Simulation, "finish", interrupt_and_finish)
    result = simulate(small_scenario(), tmp_path)
    assert result.summary["status"] == "finished"
    assert (result.folder / "summary.json").exists()


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_run_has_a_summary_of_its_progress(tmp_path: Path) -> None:
    result = simulate(small_scenario(**LOSSY), tmp_path, Interrupting(num_trainings=7))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert result.summary["status"] == "interrupted"
    account = json.loads((result.folder / "summary.json").read_text())["messages"]
    assert account["sent"] == account["delivered"] + account["lost"] + account["in_flight"]


def test_ignored_interruption_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with on_interrupt(lambda: None):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_last_round_of_every_client_is_evaluated_with_the_time_at_which_it_ended() -> None:
    result = simulate(small_scenario(timing={"compute": "lognormal"}, evaluation={"every": 3}))
    last = [row for row in result.rows if row["round"] == 4]
    times = [row["updated_time_s"] or 0.0 for row in last]
    assert len(set(times)) > 1, "not all at the end of the run"
    assert max(times) == result.summary["simulated_s"]


def test_arithmetic_settings_are_restored_after_the_run() -> None:
    before = torch.get_num_threads(), torch.backends.cudnn.deterministic
    with deterministic_torch(before[0] + 1):
        assert torch.get_num_threads() == before[0] + 1
        assert torch.backends.cudnn.deterministic
    assert (torch.get_num_threads(), torch.backends.cudnn.deterministic) == before


def test_different_starts_differ_and_same_starts_agree() -> None:
    different = Experiment(small_scenario(training={"start": "different"}))
    same = Experiment(small_scenario())
    assert not torch.equal(different.initial_model(0), different.initial_model(1))
    assert torch.equal(same.initial_model(0), same.initial_model(1))


def test_compute_time_per_step_grows_with_the_shard() -> None:
    experiment = Experiment(small_scenario(timing={"compute_per": "step"}, training={"batch_size": 10}))
    steps = [-(-len(shard) // 10) for shard in experiment.train_shards]
    assert experiment.compute_times.base_s == steps
    assert len(set(steps)) > 1


def test_every_client_and_round_has_different_batches() -> None:
    experiment = Experiment(small_scenario())
    w = experiment.initial_model(0)
    seeds = {
        experiment.training_data.job(client, t, TrainingTask(w.unsqueeze(0))).seed
        for client in range(6)
        for t in range(1, 5)
    }
    assert len(seeds) == 6 * 4


def test_evaluation_is_on_the_personal_and_on_the_global_test_set() -> None:
    experiment = Experiment(small_scenario(**LOSSY))
    result = simulate(experiment)
    last = {row["client"]: row for row in result.metrics}
    for client, w in enumerate(result.models.vectors):
        personal = evaluate(experiment.model, w, experiment.personal_tests[client])
        everything = evaluate(experiment.model, w, experiment.global_test)
        assert last[client]["trained_personal_accuracy"] == personal.accuracy
        assert last[client]["trained_global_accuracy"] == everything.accuracy
    assert experiment.personal_tests[0].x is experiment.global_test.x is not experiment.train_shards[0].x


def test_first_and_last_round_are_evaluated_for_every_interval() -> None:
    result = simulate(small_scenario(rounds=5, evaluation={"every": 3, "global_test": False}))
    assert sorted({row["round"] for row in result.metrics}) == [0, 3, 5]
    assert result.summary["accuracy"]["honest"]["global"] is None


def test_estimator_statistics_are_those_of_honest_clients() -> None:
    scenario = small_scenario(
        clients={"count": 2},
        topology="complete",
        method={"name": "rdpfl", "max_norm": 1e-6},
        adversary={"ids": [0], "attack": {"name": "scaling", "factor": 0.0}},
    )
    # The honest client receives zeros, which no bound changes; the Byzantine one receives the honest update.
    assert simulate(scenario).summary["telemetry"]["rounds"]["all"]["bounded"] == 0.0


def test_clients_have_different_speeds() -> None:
    assert len(set(Experiment(small_scenario(timing={"compute": "lognormal"})).compute_times.base_s)) == 6


def test_diverged_models_are_reported() -> None:
    summary = simulate(small_scenario(model="mlp", training={"learning_rate": 1e30})).summary
    assert "honest clients whose models have diverged: 6" in summary["warnings"]


def test_failed_run_is_marked_in_its_folder(tmp_path: Path) -> None:
    class Broken:
        def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
            if rounds_done == 3:
                raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        simulate(small_scenario(), tmp_path, Broken())
    [folder] = tmp_path.iterdir()
    assert json.loads((folder / "summary.json").read_text()) == {
        "schema": SCHEMA,
        "status": "failed",
        "error": "RuntimeError: no more",
    }


def test_all_problems_of_a_scenario_are_reported_together() -> None:
    scenario = small_scenario(
        topology={"name": "k_regular", "k": 9},
        partition={"name": "iid", "min_samples": 1000},
        model="cnn",
        method={"name": "rdpfl", "step": 0.1, "coefficient": 2.0},
    )
    with pytest.raises(ScenarioError) as caught:
        Experiment(scenario)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["topology.k", "partition.min_samples", "model", "method.coefficient"]


def test_method_that_does_not_fit_the_model_is_reported_with_other_problems() -> None:
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(topology={"name": "k_regular", "k": 9}, model="softmax", method="fedper"))
    assert [problem.path for problem in caught.value.problems] == ["topology.k", "method.head_layers"]


@pytest.mark.parametrize(
    "changes",
    [{"adversary": {"ids": [1], "attack": "noise"}}, {"training": {"local_steps": 3}}],
    ids=["ids", "local_steps"],
)
def test_resolved_scenario_of_a_run_can_be_run_again(tmp_path: Path, changes: dict) -> None:
    first = simulate(small_scenario(**changes), tmp_path)
    again = simulate(Scenario.load(first.folder / "scenario.toml"))
    assert again.summary["digest"] == first.summary["digest"]


def test_graph_file_is_found_again_from_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "graph.edgelist").write_text("0 1\n1 2\n")
    (tmp_path / "mine" / "my graph.toml").write_text(
        'rounds = 1\nclients = { count = 3 }\nmodel = "softmax"\n'
        '[topology]\nname = "file"\npath = "graph.edgelist"\n'
    )
    monkeypatch.chdir(tmp_path)
    result = simulate(Scenario.load("mine/my graph.toml"), "runs")
    assert result.summary["name"] == "my-graph"
    assert (
        simulate(Scenario.load(result.folder / "scenario.toml")).summary["digest"] == result.summary["digest"]
    )


@pytest.mark.parametrize("method", ["rdpfl", "direct"])
def test_honest_client_whose_own_training_diverges_does_not_stop_the_run(method: str) -> None:
    scenario = small_scenario(
        rounds=12, model="mlp", training={"learning_rate": 1e6}, method={"name": method, "lambda": 1.0}
    )
    summary = simulate(scenario).summary
    assert summary["status"] == "finished"
    assert any("diverged" in warning for warning in summary["warnings"])


def test_run_with_a_time_limit_ends_with_an_evaluation_of_its_models() -> None:
    scenario = small_scenario(rounds=1000, timing={"max_time_s": 20.5}, evaluation={"every": 1000})
    experiment = Experiment(scenario)
    result = simulate(experiment)
    expected = [
        evaluate(experiment.model, w, experiment.personal_tests[i]).accuracy
        for i, w in enumerate(result.models.vectors)
    ]
    assert result.summary["accuracy"]["honest"]["personal"]["mean"] == pytest.approx(sum(expected) / 6)


def test_metrics_are_the_same_with_and_without_a_folder(tmp_path: Path) -> None:
    written, kept = simulate(small_scenario(), tmp_path), simulate(small_scenario())
    assert written.metrics == kept.metrics


DEADLINE = {"wait": {"name": "deadline", "seconds": 1.0}}


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"method": "local", "adversary": {"ids": [1], "attack": "noise"}}, "attacks have no effect"),
        ({"network": {"duplication": 0.1, "transport": "reliable"}}, "network.duplication has no effect"),
        ({"output": {"events": False, "message_events": 0.5}}, "output.message_events has no effect"),
        ({"method": {"name": "rdpfl", "predictor": "last", "warmup": 3}}, "method.warmup has no effect"),
        ({"method": {"name": "rdpfl", "clip": False, "alpha": 0.5}}, "method.alpha has no effect"),
        (
            {"method": "local", "adversary": {"ids": [1], "timing": {"name": "delayed"}}},
            "attacks have no effect",
        ),
        ({"adversary": {"ids": [1], "schedule": "during_partitions"}}, "never starts"),
        ({"adversary": {"ids": [1], "schedule": {"name": "window", "from_round": 9}}}, "never starts"),
        ({"adversary": {"ids": [1], "equivocation": "mirrored"}}, "equivocation has no effect"),
        (
            {"topology": "ring", "faults": [{"name": "link_outage", "links": [[0, 3]]}], "timing": DEADLINE},
            "clients 0 and 3 are not linked",
        ),
        (
            {"faults": [{"name": "random_crashes", "mean_time_to_fail_s": 0.1}], "timing": DEADLINE},
            "set timing.max_time_s to limit the run",
        ),
    ],
)
def test_option_without_effect_causes_a_warning(changes: dict, warning: str) -> None:
    assert [warning in text for text in Experiment(small_scenario(**changes)).warnings].count(True) == 1
    aggregator, test_set = Experiment(small_scenario()).warnings
    assert "is their mean" in aggregator
    assert "is coarse" in test_set


def test_skipped_rounds_are_not_counted_as_finished() -> None:
    faults = [
        {"name": "late_join", "clients": [3], "at_s": 100.0},
        {"name": "crash", "clients": [2], "at_s": 3.5},
    ]
    result = simulate(small_scenario(faults=faults, timing=DEADLINE))
    assert result.summary["rounds_done"] == [0, 4]
    assert "honest clients that have not finished a single round: 1" in result.summary["warnings"]
    crashed = [row for row in result.rows if row["client"] == 2]
    times = crashed[-1]["trained_time_s"], crashed[-1]["updated_time_s"]
    assert times == pytest.approx((3.2, 3.3)), "evaluated at the end, with its last models"


def test_run_folder_is_reported_before_the_run_starts(tmp_path: Path) -> None:
    contents: list[list[str]] = []
    folders: list[Path] = []

    def note(path: Path) -> None:
        folders.append(path)
        contents.append(sorted(file.name for file in path.iterdir()))

    result = simulate(small_scenario(rounds=1), tmp_path, on_folder=note)
    assert folders == [result.folder]
    assert contents == [["events.jsonl", "metrics.csv"]]
