"""A defect of a plug-in is reported before time zero, in one message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.contracts.plugin_check import CONTRACTS
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.plugins import View, attack
from rdpfl_sim.simulation.experiment import Experiment
from tests.contracts.using import HEAD, METHOD, PATHS, using
from tests.packages import Packages
from tests.registries import temporary_components
from tests.support import small_scenario

GUIDE = Path(__file__).parents[2] / "docs/extend/plugins.md"
LAYERS = "nn.Flatten(), nn.Linear(8, 3)"
TWO_ANSWERS = "returns two different results for the same arguments, so runs would not be reproducible"
DRAWS = "draws from torch's global generator ("

BROKEN = {
    "aggregator": {
        "u.mean()": "returns a tensor of shape [], not [6]",
        "u.mean(dim=0).double()": "returns torch.float64 on cpu, not torch.float32 on cpu",
        "u.mean(dim=0).tolist()": "returns an object of type list, not a tensor",
        "u.mean(dim=0) / 0": "returns NaN or infinity for finite arguments",
        "u.mean(dim=0).requires_grad_()": "returns a tensor that requires a gradient; detach it",
        "u.mul_(2).mean(dim=0)": "modifies its arguments; it must work on a copy",
        "u.mean(dim=0) + torch.randn(u.shape[1])": f"{DRAWS}randn), so runs would not be reproducible; ",
        "u.mean(dim=0) + random.random()": TWO_ANSWERS,
        "u[2]": "raises IndexError: index 2 is out of bounds for dimension 0 with size 1 (odds.py, line ",
        "None": "returns None, not a tensor",
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
        "torch.randn_like(u.own)": f"{DRAWS}randn_like)",
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
        "calls.append(u) or 0.1": "changes the variable 'calls', which checkpoints do not contain",
    },
    "loss": {"u": "raises TypeError: odd() takes 1 positional argument but 3 were given"},
    "model": {
        f"nn.Sequential({LAYERS}, nn.Dropout())": f"has a layer, such as dropout, that {DRAWS}bernoulli)",
        f"nn.Sequential({LAYERS}, nn.BatchNorm1d(3))": "has buffers (2.running_mean, 2.running_var, "
        "2.num_batches_tracked), which are not part of the flat vector",
        f"nn.Sequential({LAYERS}, nn.BatchNorm1d(3, track_running_stats=False))": "raises ValueError",
        "nn.Sequential(nn.Flatten(), nn.Linear(8, 4))": "returns [3, 4] for a batch of 3, not [3, 3]",
        "nn.Sequential(nn.Flatten())": "has no parameters to train",
        "Scaled()": "has parameters (scale) in its module Scaled, which has no method 'reset_parameters'",
        "HalfReset()": "gets different initial weights when built twice (reset_parameters must set",
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
    "placement": {"[0, 0]": "returns [0, 0]; it must return 1 different clients that are still free"},
    "partition": {
        "[np.arange(5)] * v": "assigns an example twice",
        "[np.arange(5)]": "returns an object of type list, not a list of 6 arrays, one per client",
        "[np.arange(0)] * v": "leaves client 0 without examples",
        "[np.arange(5.0)] * v": "returns an object of type ndarray for client 0, not a flat array of int64",
        "np.array_split(np.random.permutation(len(u)), v)": TWO_ANSWERS,
    },
    "data": {
        "7": "returns an object of type int, not a Dataset",
        "made(x=torch.randn(9, 8))": f"{DRAWS}randn)",
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
    "method": {"7": "returns an object of type int, not a Method"},
    "wait": {
        "Wait(1.5, None)": "returns 1.5 as fraction; it must be finite and at least 0, at most 1",
        "Wait(1.0, -1.0)": "returns -1.0 as timeout_s; it must be finite and above 0",
        "None": "returns None, not a Wait",
    },
    "staleness": {"Staleness(2, 2.0)": "returns 2.0 as the weight of a message of age 1; it must be finite"},
    "transport": {"Transport(0)": "returns 0 as max_attempts; allowed: 1 to 32"},
    "compute": {"0.0": "returns 0.0 as seconds; it must be finite and above 0"},
    "geography": {
        "7": "returns an object of type int, not a function of sender and recipient",
        "lambda i, j: -1.0": "returns -1.0 as seconds; it must be finite and at least 0",
        "lambda i, j: random.random()": TWO_ANSWERS,
    },
    "bandwidth": {
        "7": "returns an object of type int, which has no method 'transmit'",
        "Forgetful()": "calls 'done' 0 times for 3 messages; it must do so once for each",
        "Stateless()": "has no tuple STATE, so checkpoints could not store its state",
        "Undroppable()": "returns an object of type Undroppable, which has no method 'drop'",
        "Queueing(u)": "changes its attribute 'waiting', which checkpoints do not contain, so a resumed run "
        "would differ; list it in STATE",
    },
}
"""For each kind, the return value of the component `odd` and the expected message."""

PARAMETERS = {"equivocation": "u", "loss": "u", "wait": "", "staleness": "", "transport": ""}
CASES = [(kind, body, flaw) for kind, cases in BROKEN.items() for body, flaw in cases.items()]

DEFINITIONS = """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8, 3))
    def forward(self, x):
        return x @ self.scale

class HalfReset(nn.Linear):
    def __init__(self):
        super().__init__(8, 3)
        self.scale = nn.Parameter(torch.randn(3))
    def forward(self, x):
        return super().forward(x) * self.scale

class Stateless:
    def transmit(self, message, done):
        done(message)
    def drop(self, sender):
        return []

class Forgetful(Stateless):
    STATE = CALLS = ()
    def transmit(self, message, done):
        pass

class Undroppable:
    STATE = CALLS = ()
    def transmit(self, message, done):
        done(message)

class Counting(Stateless):
    STATE, CALLS = ("listed",), ("end",)
    def __init__(self, kernel):
        self.kernel = kernel
        self.listed = 0
        self.waiting = []
    def transmit(self, message, done):
        self.listed += 1
        self.kernel.call_at(Call(self.end, (message, done)), self.kernel.now + 1.0)
    def end(self, call):
        message, done = call.argument
        done(message)

class Queueing(Counting):
    def transmit(self, message, done):
        self.waiting.append(message)
        super().transmit(message, done)
    def end(self, call):
        self.waiting.pop()
        super().end(call)

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


LOSSES = {
    "last[link.sender] = now_s": "changes the variable 'last', which checkpoints do not contain, so",
    "remember(now_s)": "changes the variable 'last', which checkpoints do not contain, so",
    "odd.last = [*getattr(odd, 'last', []), now_s]": "changes the variable 'last', which checkpoints do not",
    "link.propagation_s += now_s": "modifies its arguments; it must work on a copy",
    "link.last_s = now_s": "raises AttributeError: 'Link' object has no attribute 'last_s'",
}
"""A statement by which a loss keeps state outside the listed state of its link, and its flaw."""


@pytest.mark.parametrize("statement", LOSSES)
def test_loss_with_state_that_no_checkpoint_contains_is_rejected(packages: Packages, statement: str) -> None:
    helper = "last = {}\ndef remember(now_s): last[0] = now_s"
    function = f"@loss\ndef odd(link, draw, now_s):\n    {statement}\n    return False"
    packages.install("odds", f"{HEAD}\n{helper}\n{function}\n", {"loss": ["odd"]})
    with pytest.raises(ScenarioError) as caught:
        small_scenario(**using("loss"))
    [problem] = caught.value.problems
    assert problem.message.startswith(f"the loss 'odd' from the package odds 1.0 {LOSSES[statement]}")


def test_loss_may_change_the_state_of_its_link_and_fill_a_cache(packages: Packages) -> None:
    source = """
cache = {}

@loss
def odd(link, draw, now_s):
    link.in_burst = cache.setdefault(now_s, now_s > 1.0)
    return False
"""
    packages.install("odds", f"{HEAD}{source}", {"loss": ["odd"]})
    small_scenario(**using("loss"))


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
    flaws = [*BROKEN["aggregator"].values(), f"{DRAWS}randn), so runs would not be reproducible"]
    elsewhere = ("cannot be imported: ", "has an option 'strength' that needs a type annotation")
    quoted = [message for message in rows if not message.startswith(elsewhere)]
    assert len(quoted) == len(rows) - len(elsewhere) > 0
    assert [message for message in quoted if not any(flaw.startswith(message) for flaw in flaws)] == []


def test_every_kind_is_tested() -> None:
    assert {kind for kind, _, _ in CASES} == CONTRACTS.keys()


IN_BATCH = "returns a different result from '{}' for a client in a batch"
UPDATE = "def update(self, state, trained, inbox, clients): return "
STEPS = {
    "def init(self, w, clients): return w": "returns an object of type Tensor from 'init', not a",
    "def training(self, state): return state.w": "returns an object of type Tensor from 'training', not",
    "def payload(self, state, trained, clients): return 1": "returns an object of type int from",
    "def payload(self, state, trained, clients): return state, Outgoing(trained.w[0])": "does not send one",
    UPDATE + "State(state.w[:, :-1]), {}": "returns a tensor of shape [1, 26], not [1, 27], as",
    UPDATE + "State(state.w / 0), {}": "returns NaN or infinity for finite arguments, as the models in",
    UPDATE + "State(state.w.clone().requires_grad_()), {}": "returns a tensor that requires a gradient",
    UPDATE + "State(state.w.add_(1)), {}": "modifies its arguments; it must work on a copy",
    UPDATE + "State(state.w + random.random()), {}": "returns two different results for the same state",
    UPDATE + "State(state.w), {'x': 1.0}": "reports 'x' as an object of type float from 'update',",
    UPDATE + "State(trained.w + len(clients) - 1), {}": IN_BATCH.format("update"),
    UPDATE + "State(trained.w.mean(dim=0).expand_as(state.w)), {}": IN_BATCH.format("update"),
    UPDATE + "state, {'x': state.w.sum().expand(len(clients))}": IN_BATCH.format("update"),
    "def init(self, w, clients): return State(w / len(clients))": IN_BATCH.format("init"),
    "def training(self, state): return TrainingTask(state.w, momentum=1 / len(state.w))": IN_BATCH.format(
        "training"
    ),
    "def payload(self, state, trained, clients): return state, Outgoing(trained.w.cumsum(0).flip(0))": (
        IN_BATCH.format("payload")
    ),
    "def payload(self, state, trained, clients): return state, Outgoing(trained.w.mul_(2))": (
        "modifies its arguments; it must work on a copy"
    ),
    "def message_stats(self, s, t, inbox, c): return MessageStats(inbox.weights / len(c), None)": (
        IN_BATCH.format("message_stats")
    ),
    "def reference_point(self, state): return state.w.flip(0)": IN_BATCH.format("reference_point"),
    "def predicted_direction(self, state): return state.w * len(state.w)": (
        IN_BATCH.format("predicted_direction")
    ),
    "def message_stats(self, *arguments): return MessageStats(torch.zeros(1, 9), None)": "does not return",
    "def message_stats(self, *arguments): return None": "returns None from 'message_stats', not a MessageSta",
    "def predicted_direction(self, state): vars(self)['last'] = 1": "changes its attribute 'last', which",
    "def reference_point(self, state): return 0.0": "returns an object of type float from 'reference_po",
    "def shares(self, x, inbox, clients): return torch.rand(inbox.weights.shape).double()": DRAWS,
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
