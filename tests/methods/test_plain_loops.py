"""With zero latency, no loss and wait = "all", every method equals a plain loop, written here separately.

The loops share only data, initial models and names of random streams with the package. They compute in
float64, with autograd on explicit losses and numpy for the rest.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, cos, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.simulation.experiment import Experiment

ROUNDS, CLIENTS, BYZANTINE = 4, 6, (1, 4)
ETA, MOMENTUM, DECAY, BATCH = 0.2, 0.5, 0.01, 16
SHAPES = [(6, 8), (6,), (3, 6), (3,)]  # of the network 8 - 6 - 3
STARTS = [0, 48, 54, 72, 75]
BODY = 54


def scenario(method: dict[str, Any], topology: str, attack: str) -> Scenario:
    lie = {"sign_flip": {"name": "sign_flip", "scale": 2.0}, "alie": {"name": "alie", "z": 1.5}}
    return Scenario.from_dict(
        {
            "rounds": ROUNDS,
            "seed": 5,
            "clients": {"count": CLIENTS},
            "topology": topology,
            "data": {"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 240, "num_test": 30},
            "partition": {"name": "dirichlet", "alpha": 1.0, "min_samples": 12},
            "model": {"name": "mlp", "hidden": [6]},
            "training": {
                "learning_rate": ETA,
                "batch_size": BATCH,
                "momentum": MOMENTUM,
                "weight_decay": DECAY,
            },
            "method": method,
            "adversary": {
                "attack": lie.get(attack, "none"),
                "ids": [] if attack == "none" else list(BYZANTINE),
                "patience_s": 1e6,
            },
            "network": {"latency": {"name": "constant", "seconds": 0.0}},
            "timing": {"wait": "all", "compute": "lognormal"},
            "evaluation": {"every": 1000, "moments": "updated"},
        }
    )


class Plain:
    """D-PSGD; subclasses override the differences."""

    def __init__(self, sim: Experiment, options: dict[str, Any]) -> None:
        self.sim, self.options = sim, options
        self.around = sim.deployment.neighbours
        self.w = [sim.initial_model(i).double().numpy() for i in range(CLIENTS)]
        self.x = list(self.w)
        self.t = 0
        self.choices: set[str] = set()
        """Decisions that a rule has made at least once; without any, the test would check nothing."""

    def run(self, attack: str) -> list[np.ndarray]:
        byzantine = () if attack == "none" else BYZANTINE
        for self.t in range(1, ROUNDS + 1):
            for i in range(CLIENTS):
                self.train(i)
            told = [self.message(i) for i in range(CLIENTS)]
            honest = np.array([told[i][0] for i in range(CLIENTS) if i not in byzantine])
            for i in byzantine:
                if attack == "sign_flip":
                    lie = self.origin(i) - 2.0 * (told[i][0] - self.origin(i))
                else:
                    lie = honest.mean(axis=0) - 1.5 * honest.std(axis=0)
                told[i] = (lie, told[i][1])
            self.w = [self.combined(i, {j: told[j] for j in self.around[i]}) for i in range(CLIENTS)]
        return self.w

    def train(self, i: int) -> None:
        self.x[i] = self.descended(i, self.w[i])

    def message(self, i: int) -> tuple[np.ndarray, np.ndarray | None]:
        return self.x[i], None

    def origin(self, i: int) -> np.ndarray:
        return self.w[i]

    def combined(self, i: int, told: dict[int, Any]) -> np.ndarray:
        return self.gossiped(i, self.x[i], {j: m for j, (m, _) in told.items()})

    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        new = x.copy()
        for j, m in told.items():
            new += self.metropolis(i, j) * (m - x)
        return new

    def metropolis(self, i: int, j: int) -> float:
        return 1.0 / (1 + max(len(self.around[i]), len(self.around[j])))

    def logits(self, w: Any, x: torch.Tensor) -> torch.Tensor:
        w = torch.as_tensor(w)
        a, b, c, d = (w[s:e].reshape(shape) for s, e, shape in zip(STARTS, STARTS[1:], SHAPES, strict=False))
        return torch.relu(x.double() @ a.T + b) @ c.T + d

    def loss(self, w: Any, rows: torch.Tensor, i: int) -> torch.Tensor:
        shard = self.sim.train_shards[i]
        places = shard.indices[rows]
        return cross_entropy(self.logits(w, shard.x[places]), shard.y[places])

    def order(self, purpose: str, i: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.sim.streams.key(purpose, i, self.t))
        return torch.randperm(len(self.sim.train_shards[i]), generator=generator)

    def descended(
        self, i: int, w: np.ndarray, mask: Any = 1.0, momentum: float = MOMENTUM, penalty: Any = None
    ) -> np.ndarray:
        """One epoch of heavy-ball steps on cross-entropy + decay / 2 |w|^2 + the penalty."""
        w, before = torch.from_numpy(w), torch.from_numpy(w)
        mask = torch.as_tensor(mask)
        for rows in self.order("training", i).split(BATCH):
            at = w.clone().requires_grad_()
            loss = self.loss(at, rows, i) + DECAY / 2 * at.square().sum()
            if penalty is not None:
                loss = loss + penalty(at)
            (gradient,) = torch.autograd.grad(loss, at)
            w, before = w - ETA * gradient * mask + momentum * (w - before), w
        return w.numpy()

    def exam(self, i: int) -> torch.Tensor:
        return self.order("batch", i)[:BATCH]

    def answers(self, i: int, w: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits on the own batch, and the labels."""
        shard = self.sim.train_shards[i]
        places = shard.indices[self.exam(i)]
        return self.logits(w, shard.x[places]).numpy(), shard.y[places].numpy()


class PlainDfedavgm(Plain):
    def train(self, i: int) -> None:
        self.x[i] = self.descended(i, self.w[i], momentum=self.options["theta"])


class PlainBalance(Plain):
    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        gamma, kappa, alpha = (self.options[key] for key in ("gamma", "kappa", "alpha"))
        radius = gamma * exp(-kappa * self.t / ROUNDS) * np.linalg.norm(x)
        accepted = [m for m in told.values() if np.linalg.norm(m - x) <= radius]
        self.choices |= {"some"} if len(accepted) else {"none"}
        self.choices |= {"not all"} if len(accepted) < len(told) else set()
        return alpha * x + (1 - alpha) * np.mean(accepted, axis=0) if accepted else x


class PlainClippedGossip(Plain):
    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        new, tau = x.copy(), self.options["radius"]
        if tau == "adaptive":
            delta = self.options["delta"]
            weight = {j: self.metropolis(i, j) for j in told}
            inside, total = 0.0, 0.0
            for j in sorted(told, key=lambda j: np.linalg.norm(told[j] - x)):
                if inside and inside + weight[j] > (1 - delta) * sum(weight.values()) + 1e-12:
                    break  # all weights are equal here, so that nothing farther out fits either
                inside += weight[j]
                total += weight[j] * np.linalg.norm(told[j] - x) ** 2
            tau = sqrt(total / delta)
        for j, m in told.items():
            length = np.linalg.norm(m - x)
            self.choices.add("clipped" if length > tau else "whole")
            new += self.metropolis(i, j) * (m - x) * min(1.0, tau / length)
        return new


class PlainUbar(Plain):
    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        near = sorted(told, key=lambda j: np.linalg.norm(told[j] - x))
        near = near[: max(1, int(self.options["rho"] * len(told)))]
        loss = {j: self.loss(told[j], self.exam(i), i).item() for j in near}
        good = [j for j in near if loss[j] <= self.loss(x, self.exam(i), i).item()]
        self.choices.add("good" if good else "best")
        good = good or [min(loss, key=lambda j: loss[j])]
        alpha = self.options["alpha"]
        return alpha * x + (1 - alpha) * np.mean([told[j] for j in good], axis=0)


class PlainKrum(Plain):
    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        rows = [x, *told.values()]
        if self.options["aggregator"] == "median":
            return np.median(rows, axis=0)
        n = len(rows)
        num = max(1, n - ceil(0.3 * n) - 2)
        scores = [sum(sorted(np.sum((a - b) ** 2) for b in rows)[1 : 1 + num]) for a in rows]
        best = [row for row, score in zip(rows, scores, strict=True) if score <= min(scores) * (1 + 1e-9)]
        return np.mean(best, axis=0)


class PlainDitto(Plain):
    def __init__(self, sim: Experiment, options: dict[str, Any]) -> None:
        super().__init__(sim, options)
        self.shared = list(self.w)
        self.personal = list(self.w)

    def train(self, i: int) -> None:
        goal, mu = torch.from_numpy(self.shared[i]), self.options["mu"]
        self.x[i] = self.descended(i, self.shared[i])
        self.personal[i] = self.descended(
            i, self.personal[i], penalty=lambda v: mu / 2 * (v - goal).square().sum()
        )

    def origin(self, i: int) -> np.ndarray:
        return self.shared[i]

    def combined(self, i: int, told: dict[int, Any]) -> np.ndarray:
        self.shared[i] = super().combined(i, told)
        return self.personal[i]


class PlainFedper(Plain):
    def message(self, i: int) -> tuple[np.ndarray, None]:
        return self.x[i][:BODY], None

    def origin(self, i: int) -> np.ndarray:
        return self.w[i][:BODY]

    def combined(self, i: int, told: dict[int, Any]) -> np.ndarray:
        body = self.gossiped(i, self.x[i][:BODY], {j: m for j, (m, _) in told.items()})
        return np.concatenate([body, self.x[i][BODY:]])


class PlainKd(Plain):
    def gossiped(self, i: int, x: np.ndarray, told: dict[int, np.ndarray]) -> np.ndarray:
        own = self.soft(i, x)
        parts = [(1.0, x)]
        for m in told.values():
            other = self.soft(i, m)
            if self.options["distance"] == "kl":
                distance = np.mean(np.sum(own * np.log(own / other), axis=1))
            else:
                distance = np.mean(
                    [np.abs(np.sort(own[:, c]) - np.sort(other[:, c])).mean() for c in range(3)]
                )
            parts.append((exp(-distance / self.options["scale"]), m))
        total = sum(weight for weight, _ in parts)
        return sum(weight / total * m for weight, m in parts)

    def soft(self, i: int, w: np.ndarray) -> np.ndarray:
        powers = np.exp(self.answers(i, w)[0] / self.options["temperature"])
        return powers / powers.sum(axis=1, keepdims=True)


class PlainBristle(Plain):
    def train(self, i: int) -> None:
        mask = np.ones(STARTS[-1])
        if self.options["body"] == "frozen":
            mask[:BODY] = 0.0
        self.x[i] = self.descended(i, self.w[i], mask)

    def message(self, i: int) -> tuple[np.ndarray, None]:
        return self.x[i][BODY:], None

    def origin(self, i: int) -> np.ndarray:
        return self.w[i][BODY:]

    def combined(self, i: int, told: dict[int, Any]) -> np.ndarray:
        x, heads = self.x[i], {j: m for j, (m, _) in told.items()}
        near = sorted(heads, key=lambda j: np.linalg.norm(heads[j] - x[BODY:]))
        judged = {-1: x[BODY:], **{j: heads[j] for j in near[: ceil(self.options["keep"] * len(heads))]}}
        f1 = {j: self.f1(i, np.concatenate([x[:BODY], head])) for j, head in judged.items()}
        held = sorted(set(self.answers(i, x)[1].tolist()))
        new = np.zeros(21)
        for c in range(3):
            if c in held:
                score = {j: f1[j][c] for j in judged}
            else:
                self.choices.add("foreign")
                score = {j: 0.0 if j == -1 else np.mean([f1[j][k] for k in held]) for j in judged}
            if sum(score.values()) == 0:
                score[-1] = 1.0
            for j, head in judged.items():
                share = score[j] / sum(score.values())
                new[6 * c : 6 * c + 6] += share * head[6 * c : 6 * c + 6]
                new[18 + c] += share * head[18 + c]
        return np.concatenate([x[:BODY], new])

    def f1(self, i: int, w: np.ndarray) -> list[float]:
        logits, labels = self.answers(i, w)
        predicted = logits.argmax(axis=1)
        scores = []
        for c in range(3):
            hits = np.sum((predicted == c) & (labels == c))
            both = np.sum(predicted == c) + np.sum(labels == c)
            scores.append(2 * hits / both if both else 0.0)
        return scores


class PlainDispfl(Plain):
    """As in the authors' program: average, apply the mask, train, then prune and regrow."""

    def __init__(self, sim: Experiment, options: dict[str, Any]) -> None:
        super().__init__(sim, options)
        sizes = [int(np.prod(shape)) for shape in SHAPES]
        density = dict.fromkeys(range(4), 0.0)
        dense: list[int] = []
        while True:  # one layer after the other, the most promising first, becomes dense
            rest = [k for k in range(4) if k not in dense]
            wanted = options["density"] * sum(sizes) - sum(sizes[k] for k in dense)
            epsilon = wanted / sum(sum(SHAPES[k]) for k in rest)
            density = {k: epsilon * sum(SHAPES[k]) / sizes[k] for k in rest}
            most = max(density, key=lambda k: density[k])
            if density[most] <= 1:
                break
            dense.append(most)
        self.choices |= {"dense layers"} if dense else set()
        self.masks = []
        for i in range(CLIENTS):
            generator = torch.Generator().manual_seed(sim.streams.key("mask", i, 0))
            mask = np.zeros(STARTS[-1])
            for k in range(4):
                chosen = torch.randperm(sizes[k], generator=generator).numpy()
                mask[STARTS[k] + chosen[: round(density.get(k, 1.0) * sizes[k])]] = 1.0
            self.masks.append(mask)
            self.w[i] = self.w[i] * mask
        self.evolved = list(self.masks)

    def train(self, i: int) -> None:
        self.masks[i] = self.evolved[i]
        self.x[i] = self.descended(i, self.w[i], self.masks[i])
        rate = self.options["prune"] / 2 * (1 + cos(pi * (self.t - 1) / ROUNDS))
        if self.options["regrow"] == "gradient":
            at = torch.from_numpy(self.x[i]).requires_grad_()
            promise = torch.autograd.grad(self.loss(at, self.exam(i), i), at)[0].abs().numpy()
        else:
            key = self.sim.streams.key("regrow", i, self.t)
            promise = torch.rand(STARTS[-1], generator=torch.Generator().manual_seed(key)).numpy()
        mask = self.masks[i].copy()
        for start, end in pairwise(STARTS):
            alive = [k for k in range(start, end) if mask[k]]
            num = ceil(round(rate * len(alive), 9))
            for k in sorted(alive, key=lambda k: abs(self.x[i][k]))[:num]:
                mask[k] = 0.0
            dead = [k for k in range(start, end) if not mask[k]]
            for k in sorted(dead, key=lambda k: -promise[k])[:num]:
                self.choices.add("new place" if not self.masks[i][k] else "old place")
                mask[k] = 1.0
        self.evolved[i] = mask

    def message(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[i], self.masks[i]

    def combined(self, i: int, told: dict[int, Any]) -> np.ndarray:
        told = {**told, i: (self.x[i], self.masks[i])}
        new = np.zeros(STARTS[-1])
        for k in range(STARTS[-1]):
            votes = [m[k] for m, mask in told.values() if mask[k]]
            if self.evolved[i][k] and votes:
                new[k] = np.mean(votes)
        return new


CASES: list[tuple[type[Plain], dict[str, Any], set[str]]] = [
    (Plain, {"name": "dpsgd"}, set()),
    (PlainDfedavgm, {"name": "dfedavgm", "theta": 0.8}, set()),
    (PlainBalance, {"name": "balance", "gamma": 0.4, "kappa": 0.5, "alpha": 0.4}, {"some", "not all"}),
    (PlainClippedGossip, {"name": "clipped_gossip", "radius": 0.8}, {"clipped", "whole"}),
    (
        PlainClippedGossip,
        {"name": "clipped_gossip", "radius": "adaptive", "delta": 0.3},
        {"clipped", "whole"},
    ),
    (PlainUbar, {"name": "ubar", "rho": 0.6, "alpha": 0.3}, {"good", "best"}),
    (PlainKrum, {"name": "krum_gossip", "aggregator": "krum"}, set()),
    (PlainKrum, {"name": "krum_gossip", "aggregator": "median"}, set()),
    (PlainDitto, {"name": "ditto", "mu": 0.5}, set()),
    (PlainFedper, {"name": "fedper"}, set()),
    (PlainKd, {"name": "kd_pdfl", "distance": "wasserstein", "temperature": 2.0, "scale": 0.1}, set()),
    (PlainKd, {"name": "kd_pdfl", "distance": "kl", "temperature": 1.5, "scale": 0.3}, set()),
    (PlainBristle, {"name": "bristle", "body": "frozen", "keep": 0.7}, set()),
    (PlainBristle, {"name": "bristle", "body": "local", "keep": 0.7}, set()),
    (
        PlainDispfl,
        {"name": "dispfl", "density": 0.5, "prune": 0.5, "regrow": "gradient"},
        {"new place", "old place", "dense layers"},
    ),
    (
        PlainDispfl,
        {"name": "dispfl", "density": 0.3, "prune": 0.8, "regrow": "random"},
        {"new place", "old place"},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["none", "sign_flip", "alie"])
@pytest.mark.parametrize("topology", ["complete", "ring"])
@pytest.mark.parametrize(
    ("plain", "method", "choices"), CASES, ids=["-".join(map(str, case[1].values())) for case in CASES]
)
def test_simulator_equals_the_plain_loop(
    plain: type[Plain], method: dict[str, Any], choices: set[str], topology: str, attack: str
) -> None:
    experiment = Experiment(scenario(method, topology, attack))
    loop = plain(experiment, method)
    expected = loop.run(attack)
    for client, (w, w_expected) in enumerate(zip(simulate(experiment).models.vectors, expected, strict=True)):
        np.testing.assert_allclose(w.numpy(), w_expected, rtol=1e-4, atol=1e-5, err_msg=f"client {client}")
    if (attack, topology) == ("sign_flip", "complete"):
        assert choices <= loop.choices, "the rule never binds, so it was not tested"
    assert max(np.abs(w - x).max() for w, x in zip(expected, loop.x, strict=True)) > 0.01, "nothing is mixed"


@pytest.mark.slow
def test_the_loops_differ_from_each_other() -> None:
    models = []
    for plain, method, _ in CASES:
        experiment = Experiment(scenario(method, "ring", "sign_flip"))
        models.append(plain(experiment, method).run("sign_flip")[0])
    for place, one in enumerate(models):
        assert all(np.abs(one - other).max() > 1e-3 for other in models[:place]), CASES[place][1]
