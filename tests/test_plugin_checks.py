"""A defect of a plug-in is reported before time zero, in one message."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.components.registry import Plugin
from rdpfl_sim.components.schema import Component
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.methods import METHODS
from rdpfl_sim.plugin_checks import CHECKS, Guard, check_steps, checks_of, rehearse
from rdpfl_sim.plugins import View, attack
from rdpfl_sim.scenario.component_list import KINDS
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.world.faults.fault import FaultContext
from rdpfl_sim.world.network.topology import neighbours, ring
from tests.packages import Packages
from tests.registries import temporary_components
from tests.support import small_scenario
from tests.using_plugins import HEAD, METHOD, PATHS, using

GUIDE = Path(__file__).parents[1] / "docs/extend/plugins.md"
LAYERS = "nn.Flatten(), nn.Linear(8, 3)"
TWO_ANSWERS = "returns two different results for the same arguments, so runs would not be reproducible"

TWO_OF_A_BATCH = "returns two different results for the same batch, so runs would not be "
DRAWS = "draws random numbers in training, so runs would not be reproducible; only layers such as nn.Dropout"

BROKEN = {
    "aggregator": {
        "u.mean()": "returns a tensor of shape [], not [6]",
        "u.mean(dim=0).double()": "returns torch.float64 on cpu, not torch.float32 on cpu",
        "u.mean(dim=0).tolist()": "returns an object of type list, not a tensor",
        "u.mean(dim=0) / 0": "returns NaN or infinity for finite arguments",
        "u.mean(dim=0).requires_grad_()": "returns a tensor that requires a gradient; detach it",
        "u.mul_(2).mean(dim=0)": "modifies its arguments; it must work on a copy",
        "u.mean(dim=0) + torch.randn(u.shape[1])": TWO_ANSWERS,
        "u.mean(dim=0) + random.random()": TWO_ANSWERS,
        "u[2]": "raises IndexError: index 2 is out of bounds for dimension 0 with size 1 (odds.py, line ",
        "None": "returns None, not a tensor",
        "exit('bye')": "raises SystemExit: bye (odds.py, line ",
    },
    "pre_aggregator": {
        "u[0]": "returns shape [6]; expected shape [m, 6] with at least one row",
        "u[:0]": "returns shape [0, 6]; expected shape [m, 6] with at least one row",
        "u.float() * np.random.rand()": TWO_ANSWERS,
    },
    "attack": {
        "u.honest": "raises TypeError: an attack that uses view.honest must be declared with @attack",
        "u.own[:-1]": "returns a tensor of shape [5], not [6]",
        "u.own * float('nan')": "returns NaN or infinity for finite arguments",
        "u.own.zero_()": "modifies its arguments; it must work on a copy",
        "torch.randn_like(u.own)": TWO_ANSWERS,
        "u.own.double()": "returns torch.float64 on cpu, not torch.float32 on cpu",
    },
    "equivocation": {"u": "raises TypeError: odd() takes 1 positional argument but 3 were given"},
    "timing_attack": {
        "None": "returns None, not a list of ScheduledMessage",
        "[ScheduledMessage(u.payload, u.round, -1.0)]": "returns -1.0 as the delay of a message; it must be",
        "[ScheduledMessage(u.payload, 1.5)]": "returns a message whose stamp is an object of type float",
        "[ScheduledMessage(u.payload, u.round, random.random())]": TWO_ANSWERS,
    },
    "attack_schedule": {"1": "returns an object of type int, not True or False"},
    "latency": {
        "-0.1": "returns -0.1 as seconds; it must be finite and at least 0",
        "float('nan')": "returns nan as seconds; it must be finite and at least 0",
        "np.float64(u)": "returns an object of type float64 as seconds, not a float",
        "random.random()": TWO_ANSWERS,
    },
    "loss": {"u": "raises TypeError: odd() takes 1 positional argument but 3 were given"},
    "model": {
        "Drawing(torch.rand_like, True)": TWO_OF_A_BATCH,
        "Drawing(torch.rand_like, False)": DRAWS,
        "Drawing(lambda x: random.random(), False)": DRAWS,
        "Drawing(lambda x: torch.dropout(x, 1e-9, True), False)": DRAWS,
        f"nn.Sequential({LAYERS}, nn.AlphaDropout())": DRAWS,
        f"nn.Sequential({LAYERS}, nn.BatchNorm1d(3))": "raises ValueError: a model must have no state "
        "except its parameters; it has the buffers 2.running_mean, 2.running_var, 2.num_batches_tracked; "
        "use nn.GroupNorm instead of batch normalisation",
        f"nn.Sequential({LAYERS}, nn.BatchNorm1d(3, track_running_stats=False))": "raises ValueError",
        "nn.Sequential(nn.Flatten(), nn.Linear(8, 4))": "returns [3, 4] for a batch of 3, not [3, 3]",
        "nn.Sequential(nn.Flatten())": "has no parameters to train",
        "Scaled(np.random.rand())": f"{TWO_ANSWERS}; draw initial weights with the functions of torch",
        "nn.Sequential(nn.Flatten(), nn.Linear(8, 3).double())": "has a parameter 1.weight that is",
        "7": "returns an object of type int, not a torch.nn.Module",
        "nn.Sequential(nn.Linear(9, 3))": "raises RuntimeError: ",
    },
    "topology": {
        "nx.path_graph(3)": "returns a graph whose nodes are not the clients 0 to 5, as int",
        "nx.path_graph(u, nx.DiGraph)": "returns an object of type DiGraph, not an undirected",
        "nx.gnp_random_graph(u, 0.5)": TWO_ANSWERS,
        "nx.relabel_nodes(nx.path_graph(u), str)": "returns a graph whose nodes are not the clients",
    },
    "placement": {
        "[0, 0]": "returns [0, 0]; it must return 1 different clients that are still free",
        "[np.int64(0)]": "returns [np.int64(0)], not a list of clients",
    },
    "partition": {
        "[np.arange(5)] * v": "assigns an example twice",
        "[np.arange(5)]": "returns an object of type list, not a list of 6 arrays, one per client",
        "[np.arange(0)] * v": "leaves client 0 without examples",
        "[np.arange(5.0)] * v": "returns an object of type ndarray for client 0, not a flat array of int64",
        "np.array_split(np.random.permutation(len(u)), v)": TWO_ANSWERS,
    },
    "data": {
        "7": "returns an object of type int, not a Dataset",
        "made(x=torch.randn(9, 8))": TWO_ANSWERS,
        "made(y=torch.full((9,), 3))": "returns a label in y_train outside 0 to 2",
        "made(x=torch.ones(9, 8).double())": "returns x_train as torch.float64 and y_train",
        "made(x=torch.full((9, 8), float('nan')))": "returns NaN or infinity in x_train",
    },
    "fault": {
        "7": "returns an object of type int, not an iterator of changes",
        "[(2.0, Start(Crash((1,)))), (1.0, Start(Crash((2,))))]": "returns 1.0 as the time of a change",
        "[(1.0, 'crash')]": "yields an object of type tuple, not a pair of a time and a change",
        "[(random.random(), Start(Crash((1,), True)))]": TWO_ANSWERS,
    },
    "executor": {"7": "returns an object of type int, not an Executor"},
    "learning_rate_schedule": {
        "0.0": "returns 0.0 as a factor; it must be finite and above 0",
        "'half'": "returns an object of type str as a factor, not a float",
        "random.random()": TWO_ANSWERS,
    },
    "method": {"7": "returns an object of type int, not a Method"},
    "wait": {
        "Wait(1.5, None)": "returns 1.5 as fraction; it must be finite and at least 0, at most 1",
        "Wait(1.0, -1.0)": "returns -1.0 as timeout_s; it must be finite and at least 0",
        "None": "returns None, not a Wait",
    },
    "staleness": {"Staleness(2, 2.0)": "returns 2.0 as decay; it must be finite and at least 0, at most 1"},
    "transport": {"Transport(0)": "returns 0 as max_attempts; it must be finite and at least 1, at most 32"},
    "compute": {"0.0": "returns 0.0 as seconds; it must be finite and above 0"},
    "geography": {
        "7": "returns an object of type int, not a function of sender and recipient",
        "lambda i, j: -1.0": "returns -1.0 as seconds; it must be finite and at least 0",
        "lambda i, j: random.random()": TWO_ANSWERS,
    },
    "bandwidth": {
        "7": "returns an object of type int, which does not have all of transmit, drop, STATE, CALLS",
        "Stateless()": "returns an object of type Stateless, which does not have all of transmit",
    },
}
"""For each kind, the return value of the component `odd` and the expected message."""

PARAMETERS = {"equivocation": "u", "loss": "u", "wait": "", "staleness": "", "transport": ""}
CASES = [(kind, body, flaw) for kind, cases in BROKEN.items() for body, flaw in cases.items()]

DEFINITIONS = """
class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8, 3) * scale)
    def forward(self, x):
        return x @ self.scale

class Drawing(nn.Linear):
    def __init__(self, draw, always):
        super().__init__(8, 3)
        self.draw, self.always = draw, always
    def forward(self, x):
        return super().forward(x + self.draw(x) if self.always or self.training else x)

class Stateless:
    def transmit(self, message, done):
        done(message)
    def drop(self, sender):
        return []

def made(x=None, y=None):
    x = torch.ones(9, 8) if x is None else x
    y = torch.arange(9) % 3 if y is None else y
    return Dataset(x, y, torch.ones(3, 8), torch.arange(3), 3)
"""


@pytest.mark.parametrize(("kind", "body", "flaw"), CASES)
def test_flaw_is_reported_before_time_zero(packages: Packages, kind: str, body: str, flaw: str) -> None:
    parameters = PARAMETERS.get(kind, "u, v=None, *rest")
    function = f"@{kind}\ndef odd({parameters}): return {body}"
    packages.install("odds", f"{HEAD}\n{function}\n{DEFINITIONS}", {kind: ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(**using(kind)))
    [problem] = caught.value.problems
    assert problem.path == PATHS.get(kind, kind)
    assert problem.message.startswith(f"the {kind.replace('_', ' ')} 'odd' from the package odds 1.0 {flaw}")


RANDOM = {
    "attack": ("u.own * random.random()", "draw with generator=view.generator"),
    "equivocation": ("v + random.random()", "its third argument is a random number between 0 and 1"),
    "timing_attack": (
        "[ScheduledMessage(u.payload, u.round, random.random())]",
        "draw from a generator seeded with `view.key`",
    ),
    "aggregator": (
        "u.mean(dim=0) + torch.rand(1)",
        "declare it with @aggregator(needs_generator=True) and draw from its last argument",
    ),
    "pre_aggregator": (
        "u * random.random()",
        "declare it with @pre_aggregator(needs_generator=True) and draw from its last argument",
    ),
    "latency": ("random.random()", "its first argument is a random number between 0 and 1"),
    "loss": (
        "random.random() < 0.5",
        "draw from a generator seeded with `link.key` and the second argument",
    ),
    "topology": ("nx.gnp_random_graph(u, 0.5)", "draw random numbers from its argument `rng`"),
}
"""For each kind, a return value that cannot be repeated, and the advice in the message."""


@pytest.mark.parametrize("kind", RANDOM)
def test_message_about_a_random_result_says_where_to_draw(packages: Packages, kind: str) -> None:
    body, advice = RANDOM[kind]
    function = f"@{kind}\ndef odd(u, v=None, *rest): return {body}"
    packages.install("odds", f"{HEAD}\n{function}\n", {kind: ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(**using(kind)))
    [problem] = caught.value.problems
    assert problem.message.endswith(f", so runs would not be reproducible; {advice}")


def test_model_may_have_dropout_and_parameters_of_its_own(packages: Packages) -> None:
    source = """
@model
def odd(shape, num_classes):
    drop = nn.Dropout()
    return nn.Sequential(drop, Scaled(1.0), drop)
"""
    packages.install("odds", HEAD + DEFINITIONS + source, {"model": ["odd"]})
    result = simulate(small_scenario(**using("model")))
    assert simulate(small_scenario(**using("model"))).summary["digest"] == result.summary["digest"]
    assert Experiment(small_scenario(**using("model"))).model.has_dropout


LOSSES = {
    "link.propagation_s += now_s": "modifies its arguments; it must work on a copy",
    "link.last_s = now_s": "raises AttributeError: 'Link' object has no attribute 'last_s'",
}
"""A statement by which a loss changes its link beyond the listed state, and its flaw."""


@pytest.mark.parametrize("statement", LOSSES)
def test_loss_that_changes_more_than_the_state_of_its_link_is_rejected(
    packages: Packages, statement: str
) -> None:
    function = f"@loss\ndef odd(link, draw, now_s):\n    {statement}\n    return False"
    packages.install("odds", f"{HEAD}\n{function}\n", {"loss": ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        small_scenario(**using("loss"))
    [problem] = caught.value.problems
    assert problem.message.startswith(f"the loss 'odd' from the package odds 1.0 {LOSSES[statement]}")


def test_loss_may_change_the_state_of_its_link(packages: Packages) -> None:
    source = """
@loss
def odd(link, draw, now_s):
    link.in_burst = now_s > 1.0
    return False
"""
    packages.install("odds", f"{HEAD}{source}", {"loss": ["odd"]})
    small_scenario(**using("loss"))


FAULTS = {
    ("KIND, CONDITION = 'partition', Condition.CRASHED", "Start"): (
        "has the KIND 'partition' in the records, which Partition already uses"
    ),
    ("CONDITION = Condition.CRASHED", "Start"): "raises AttributeError: 'Odd' object has no attribute 'KIND'",
    ("KIND, CONDITION = 'odd link', Condition.LINK_DOWN", "Start"): (
        "needs the field 'links' in its record: its CONDITION is down"
    ),
    ("KIND = 'odd topology'", "Start"): "needs the field 'links' in its record: its CONDITION is None",
    ("KIND, CONDITION = 'odd leave', Condition.DEPARTED", "End"): "raises AssertionError: Odd never ends",
}
"""The facts of a fault class, the phase of its change, and its flaw."""


@pytest.mark.parametrize("case", FAULTS)
def test_fault_class_that_cannot_be_recorded_is_rejected(packages: Packages, case: tuple[str, str]) -> None:
    facts, phase = case
    source = f"""
from dataclasses import dataclass
@dataclass(frozen=True)
class Odd(Fault):
    {facts}
    clients: tuple[int, ...]
@fault
def odd(context): return iter([(1.0, {phase}(Odd((1,))))])
"""
    packages.install("odds", f"{HEAD}{source}", {"fault": ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(**using("fault")))
    [problem] = caught.value.problems
    assert problem.path == "faults[0]"
    assert problem.message.startswith(f"the fault 'odd' from the package odds 1.0 {FAULTS[case]}")


REJECTS = """
@{kind}
def odd(first, *others, size: int = 6):
    if first != size:
        raise OptionError("size", "does not fit")
    return lambda i, j: 0.1
"""


def test_option_that_fits_the_run_but_not_the_sample_is_accepted(packages: Packages) -> None:
    packages.install("odds", HEAD + REJECTS.format(kind="geography"), {"geography": ["odd"]})
    Experiment(small_scenario(**using("geography")))


def test_option_that_an_attack_rejects_is_reported(packages: Packages) -> None:
    packages.install("odds", HEAD + REJECTS.format(kind="attack"), {"attack": ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        small_scenario(**using("attack"))
    [problem] = caught.value.problems
    assert (
        problem.message
        == "the attack 'odd' from the package odds 1.0 rejects its option 'size': does not fit"
    )


NOT_THE_SUM = "returns weights for which the weighted sum of the messages is not the result"
WEIGHTS = {
    ("aggregator", "u.mean(dim=0)", "torch.eye(len(u)).double()[0]"): NOT_THE_SUM,
    ("aggregator", "u[0]", "1 / len(u)"): "returns an object of type float, not a tensor",
    ("aggregator", "u[0]", "torch.eye(len(u))[0]"): "returns torch.float32 on cpu, not torch.float64 on cpu",
    ("aggregator", "u[0]", "torch.eye(len(u)).double()"): "returns a tensor of shape [1, 1], not [1]",
    ("aggregator", "-u[0]", "-torch.eye(len(u)).double()[0]"): "returns negative weights",
    ("pre_aggregator", "u[:1]", "torch.ones(1, len(u)).double()"): NOT_THE_SUM,
    ("pre_aggregator", "u[:1]", "torch.ones(len(u)).double()"): "returns a tensor of shape [1], not [1, 1]",
}
"""Kind of a component, its return value, that of its function `weights`, and the expected message."""


@pytest.mark.parametrize("case", WEIGHTS)
def test_wrong_message_weights_are_reported_before_time_zero(
    packages: Packages, case: tuple[str, str, str]
) -> None:
    kind, body, weights = case
    function = f"@{kind}(weights=lambda u: {weights})\ndef odd(u): return {body}"
    packages.install("odds", f"{HEAD}\n{function}\n", {kind: ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        small_scenario(**using(kind))
    [problem] = caught.value.problems
    assert problem.path == PATHS[kind]
    assert problem.message == (
        f"the {kind.replace('_', ' ')} 'odd' from the package odds 1.0 "
        f"declares a function `weights` that {WEIGHTS[case]}"
    )


@pytest.mark.parametrize(("kind", "body"), [("aggregator", "u[0]"), ("pre_aggregator", "u[:1]")])
def test_component_without_message_weights_is_named_in_a_warning(
    packages: Packages, kind: str, body: str
) -> None:
    packages.install("odds", f"{HEAD}\n@{kind}\ndef odd(u): return {body}\n", {kind: ["odd"]})
    warning = (
        f"{PATHS[kind]}: the {kind.replace('_', ' ')} 'odd' from the package odds 1.0 declares no weights, "
        f"so telemetry has no message weights; see the argument `weights` of @{kind}"
    )
    summary = simulate(small_scenario(**using(kind))).summary
    assert summary["warnings"].count(warning) == 1
    assert summary["telemetry"]["messages_from"]["honest"]["relative_weight"] is None
    without_telemetry = small_scenario(**using(kind), output={"telemetry": False})
    assert warning not in Experiment(without_telemetry).warnings


def test_aggregator_with_message_weights_is_accepted_without_a_warning(packages: Packages) -> None:
    source = "@weighting_aggregator()\ndef odd(u): return torch.eye(len(u)).double()[0]"
    packages.install("odds", f"{HEAD}\n{source}\n", {"aggregator": ["odd"]})
    summary = simulate(small_scenario(**using("aggregator"))).summary
    assert not [text for text in summary["warnings"] if "weights" in text]
    assert summary["telemetry"]["messages_from"]["honest"]["relative_weight"] == pytest.approx(1.0)


def test_guide_quotes_messages_that_exist() -> None:
    section = GUIDE.read_text().partition("## What is tested")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [a-z, ]+ \| `(.+)` \|$", section, flags=re.MULTILINE)
    flaws = BROKEN["aggregator"].values()
    elsewhere = ("cannot be imported: ", "has an option 'strength' that needs a type annotation")
    quoted = [message for message in rows if not message.startswith(elsewhere)]
    assert len(quoted) == len(rows) - len(elsewhere) > 0
    assert [message for message in quoted if not any(flaw.startswith(message) for flaw in flaws)] == []


def test_every_kind_is_tested() -> None:
    assert {kind for kind, _, _ in CASES} == CHECKS.keys()


IN_BATCH = "returns a different result for a client in a batch"
UPDATE = "def update(self, state, trained, inbox, clients): return "
STEPS = {
    "def init(self, w, clients): return w": "returns an object of type Tensor from 'init', not a",
    "def training(self, state): return state.w": "returns an object of type Tensor from 'training', not",
    "def trained_model(self, trained): return None": "returns None from 'trained_model', not a tensor",
    "def trained_model(self, trained): return trained.w[0]": "returns a tensor of shape [27], not [1, 27]",
    "def payload(self, state, trained, clients): return 1": "returns an object of type int from",
    "def payload(self, state, trained, clients): return state, Outgoing(trained.w[0])": (
        "returns a tensor of shape [27] from 'payload', not [1], one row per client"
    ),
    UPDATE + "State(state.w[:, :-1]), {}": "returns a tensor of shape [1, 26], not [1, 27], as",
    UPDATE + "State(state.w / 0), {}": "returns NaN or infinity for finite arguments, as the models in",
    UPDATE + "State(state.w.clone().requires_grad_()), {}": "returns a tensor that requires a gradient",
    UPDATE + "State(state.w.add_(1)), {}": "modifies its arguments; it must work on a copy",
    UPDATE + "State(state.w + random.random()), {}": "returns two different results for the same state",
    UPDATE + "State(state.w), {'x': 1.0}": "reports values from 'update' that are not tensors",
    UPDATE + "State(trained.w + len(clients) - 1), {}": IN_BATCH,
    UPDATE + "State(trained.w.mean(dim=0).expand_as(state.w)), {}": IN_BATCH,
    UPDATE + "state, {'x': state.w.sum().expand(len(clients))}": IN_BATCH,
    "def payload(self, state, trained, clients): return state, Outgoing(trained.w.mul_(2))": (
        "modifies its arguments; it must work on a copy"
    ),
    "def message_stats(self, s, t, inbox, c): return MessageStats(inbox.weights / len(c), None)": IN_BATCH,
    "def message_stats(self, *arguments): return MessageStats(torch.zeros(1, 9), None)": (
        "returns a tensor of shape [1, 9] from 'message_stats', not [1, 1], one number per message"
    ),
    "def message_stats(self, *arguments): return None": "returns None from 'message_stats', not a MessageSta",
    "def reference_point(self, state): return 0.0": "returns an object of type float from 'reference_po",
    "def shares(self, x, inbox, clients): return torch.rand(inbox.weights.shape).double()": (
        "returns two different results for the same state and messages"
    ),
    "def shares(self, x, inbox, clients): return inbox.weights.sum(dim=1)": (
        "returns a tensor of shape [1] from 'shares', not [1, 1], one number per message"
    ),
    "def shares(self, x, inbox, clients): return 0.5": "returns an object of type float from 'shares', not a",
    "def shares(self, x, inbox, clients): raise KeyError('share')": "raises KeyError: 'share' (odds.py,",
}
"""A definition that replaces the correct one of a method, and the expected message."""


@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_a_method_is_tested(packages: Packages, step: str) -> None:
    packages.install("odds", f"{HEAD}{METHOD}    {step}\n", {"method": ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        Experiment(small_scenario(method="odd"))
    [problem] = caught.value.problems
    assert problem.path == "method"
    assert problem.message.startswith(f"the method 'odd' from the package odds 1.0 {STEPS[step]}")


def test_method_without_a_flaw_runs_and_is_written_into_checkpoints(
    packages: Packages, tmp_path: Path
) -> None:
    packages.install("odds", f"{HEAD}{METHOD}", {"method": ["odd"]})
    scenario = small_scenario(method="odd", checkpoint={"every_rounds": 1})
    assert simulate(scenario, tmp_path).summary["status"] == "finished"


def test_malformed_messages_need_a_mark(packages: Packages) -> None:
    source = f"{HEAD}\n@attack(sends_malformed=True)\ndef odd(view): return view.own[:-1]\n"
    packages.install("odds", source, {"attack": ["odd"]})
    accounts = simulate(small_scenario(**using("attack"))).summary["messages"]
    assert accounts["rejected"] > 0


def test_component_of_a_script_is_named_by_its_module() -> None:
    with temporary_components():

        @attack
        def short(view: View) -> Tensor:
            return view.own[:-1]

        with pytest.raises(ScenarioError, match=r"the attack 'short' from the module \S+ returns a tensor"):
            small_scenario(adversary={"attack": "short", "fraction": 0.2})


# Built-in components pass the same checks.

NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("compute", "list"): {"seconds": [1.0, 2.0]},
    ("learning_rate_schedule", "step"): {"every": 2},
    ("geography", "regions"): {"delays_s": [[0.0, 0.1], [0.2, 0.0]]},
    ("fault", "partition"): {"sides": [[0, 1]]},
    ("fault", "link_outage"): {"links": [[0, 1]]},
    ("fault", "crash"): {"clients": [1], "at_s": 2.0},
    ("fault", "late_join"): {"clients": [1], "at_s": 2.0},
    ("fault", "leave"): {"clients": [1], "at_s": 2.0},
    ("fault", "slow_down"): {"clients": [1], "factor": 2.0},
    ("fault", "random_partitions"): {"mean_time_to_fail_s": 9.0, "mean_time_to_heal_s": 3.0},
    ("fault", "random_outages"): {"mean_time_to_fail_s": 9.0, "mean_time_to_heal_s": 3.0},
    ("fault", "random_crashes"): {"mean_time_to_fail_s": 9.0, "mean_time_to_recover_s": 3.0},
    ("fault", "resample_topology"): {"every_s": 5.0},
    ("fault", "change_topology"): {"at_s": 5.0, "topology": "complete"},
}
"""Options without a default."""

NEED_FILES = {
    *(("data", name) for name in ("cifar10", "cifar100", "mnist", "fashion_mnist", "npz")),
    *(("topology", "file"), ("fault", "churn_trace")),
}
CALLED_WITH_ARGUMENTS = {"topology", "placement", "partition", "data", "model", "fault"}
SPECIAL = {"method", "executor"}


def components(*, called: bool) -> list[tuple[str, str]]:
    return [
        (kind, name)
        for kind, choice in KINDS.items()
        if kind not in SPECIAL and (kind in CALLED_WITH_ARGUMENTS) is called
        for name in choice.registry
        if (kind, name) not in NEED_FILES
    ]


def component(kind: str, name: str) -> Component:
    return KINDS[kind].validate({"name": name, **NEEDED.get((kind, name), {})})


def guarded(built: Component, kind: str) -> tuple[Guard, dict[str, Any]]:
    """Return the component as a plug-in, and its options."""
    target = type(built).target
    plugin = Plugin(kind, built.name, "package itself 1.0", target.__module__)
    built.guard_with(partial(Guard, plugin=plugin, checks=checks_of(kind, target)))
    bound = built.bind()
    return (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})


def test_every_kind_has_checks() -> None:
    assert CHECKS.keys() == KINDS.keys()


@pytest.mark.parametrize(("kind", "name"), components(called=False))
def test_built_in_component_passes_on_samples(kind: str, name: str) -> None:
    guard, options = guarded(component(kind, name), kind)
    assert guard.checks.samples is not None
    assert list(guard.checks.samples(guard.target))
    guard.try_out(options)
    guard.checks.declarations(partial(guard, **options))


def arguments(kind: str) -> tuple[Any, ...]:
    def rng() -> np.random.Generator:
        return np.random.default_rng(1)

    graph = ring(12, rng())
    around = neighbours(graph)
    context = FaultContext(12, sorted(graph.edges), 7, lambda k: around, lambda topology: around)
    return {
        "topology": (12, rng()),
        "placement": (graph, 3, rng(), {0}),
        "partition": (np.arange(600) % 10, 12, rng()),
        "data": (rng(),),
        "model": ((1, 8, 8), 10),
        "fault": (context,),
    }[kind]


@pytest.mark.parametrize(("kind", "name"), components(called=True))
def test_built_in_component_passes_on_real_arguments(kind: str, name: str) -> None:
    guard, options = guarded(component(kind, name), kind)
    guard(*arguments(kind), **options)


@pytest.mark.parametrize("name", METHODS)
def test_built_in_method_passes(name: str) -> None:
    experiment = Experiment(small_scenario(method=name, model="mlp"))
    plugin = Plugin("method", name, "package itself 1.0", "rdpfl_sim")
    method = check_steps(plugin, experiment.method)
    rehearse(
        method,
        plugin,
        experiment.initial_model(0),
        experiment.computation,
    )
