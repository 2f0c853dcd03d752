"""With zero latency, no loss and wait = "all", the simulator equals Algorithm 1 as a plain loop."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.attacks import ATTACKS, View
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.simulation.experiment import Experiment

ROUNDS = 9  # beyond the warm-up of 5, so that the Barzilai-Borwein prediction is at work
ETA, LAMBDA, ALPHA, C, TAU_0, G_D = 0.1, 0.5, 0.9, 1.5, 0.02, 3.0  # so that both clips bind
GOOD_NATURED = {
    "sign_flip": {"scale": 3.0},
    "noise": {"sigma": 0.1},
    "random": {"sigma": 0.1},
    "constant": {"value": 0.02},
    "scaling": {"factor": 5.0},
    "mimic": {"warmup": 4},
}


HALVED = {"name": "step", "every": 2, "factor": 0.5, "warmup": 2}


def scenario(
    topology: str, attack: str, compute: str, threshold: str = "lagged", schedule: Any = "constant"
) -> Scenario:
    return Scenario.from_dict(
        {
            "rounds": ROUNDS,
            "seed": 3,
            "clients": {"count": 8},
            "topology": topology,
            "model": {"name": "mlp", "hidden": [8]},
            "training": {"learning_rate": ETA, "batch_size": 32, "schedule": schedule},
            "method": {
                "name": "rdpfl",
                "lambda": LAMBDA,
                "threshold": threshold,
                "tau_0": TAU_0,
                "max_norm": G_D,
            },
            "adversary": {
                "attack": {"name": attack, **GOOD_NATURED.get(attack, {})},
                "ids": [] if attack == "none" else [1, 4],
                "patience_s": 1e6,
            },
            "network": {"latency": {"name": "constant", "seconds": 0.0}},
            "timing": {"wait": "all", "compute": compute},
            "evaluation": {"every": 1000, "moments": "updated"},
        }
    )


def plain_loop(sim: Experiment, attack: str, threshold: str) -> list[Tensor]:
    """Algorithms 1 and 2 of the paper, line by line, with notes 1 to 4 of paper_notes.md."""
    n, byzantine = len(sim.deployment.neighbours), set(sim.deployment.byzantine)
    craft = ATTACKS[attack]
    w = [sim.initial_model(i) for i in range(n)]
    w_history = [[] for _ in range(n)]
    d_history = [[] for _ in range(n)]
    tau, delta_before = [TAU_0] * n, [0.0] * n
    memory = {j: {} for j in byzantine}
    for t in range(1, ROUNDS + 1):
        eta = ETA
        if sim.scenario.training.schedule.name == "step":  # two rounds of warm-up, then halved every two
            eta = ETA / 2 if t == 1 else ETA / 2 ** ((t - 3) // 2) if t > 2 else ETA
        poisoned = byzantine if attack == "label_flip" else ()
        jobs = [
            sim.training_data.train(
                sim.model, sim.training_data.job(i, t, TrainingTask(w[i].unsqueeze(0)), i in poisoned)
            )
            for i in range(n)
        ]
        u = [(w[i] - jobs[i].w[0]) / (eta * jobs[i].num_steps[0]) for i in range(n)]
        d_hat = [predict(t, w_history[i], d_history[i]) for i in range(n)]

        def attack_message(j: int, i: int | None, t=t, u=u, d_hat=d_hat) -> Tensor:
            """Return the message of attacker j to victim i, or to all."""
            seen = [
                k for k in (range(n) if i is None else sim.deployment.neighbours[i]) if k not in byzantine
            ]
            details = {"seed": sim.streams.key("attack", j, t, *([] if i is None else [i])), "round": t}
            if i is not None:
                details["victim"] = u[i] if i not in byzantine else None
                details["expected"] = d_hat[i]
            num_byzantine = len(byzantine if i is None else byzantine & set(sim.deployment.neighbours[i]))
            honest = torch.stack([u[k] for k in seen] or [u[j]])
            view = View(u[j], honest, seen, num_byzantine=num_byzantine, memory=memory[j], **details)
            return craft(view, **GOOD_NATURED.get(attack, {}))

        to_all = (
            {} if ATTACKS.facts(attack).needs == "victim" else {j: attack_message(j, None) for j in byzantine}
        )
        for i in range(n):
            received = [
                u[j] if j not in byzantine else to_all[j] if to_all else attack_message(j, i)
                for j in sim.deployment.neighbours[i]
            ]
            d_bar = middle(torch.stack([m for m in received if m.isfinite().all()]))
            prediction = d_bar if d_hat[i] is None else d_hat[i]
            delta = d_bar - prediction
            tau[i] = ALPHA * tau[i] + (1 - ALPHA) * C * (
                delta_before[i] if threshold == "lagged" else float(delta.norm())
            )
            delta_before[i] = float(delta.norm())
            d = prediction + delta * min(1.0, tau[i] / max(float(delta.norm()), 1e-12))
            d = d * min(1.0, G_D / float(d.norm()))
            w[i] = w[i] - eta * jobs[i].num_steps[0] * (u[i] + LAMBDA * d)
            w_history[i].append(w[i])
            d_history[i].append(d_bar)
    return w


def predict(t: int, w: list[Tensor], d_bar: list[Tensor]) -> Tensor | None:
    if t == 1:
        return None
    if t <= 5:
        return d_bar[-1]
    s, y = w[-1] - w[-2], d_bar[-1] - d_bar[-2]
    beta = torch.dot(s, y) / (torch.dot(s, s) + 1e-8)
    return d_bar[-1] + beta.clamp(-10, 10) * s


def middle(rows: Tensor) -> Tensor:
    ordered = rows.sort(dim=0).values
    return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2


@pytest.mark.parametrize("compute", ["constant", "lognormal"])
@pytest.mark.parametrize("topology", ["complete", "ring"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_simulator_equals_the_plain_loop(attack: str, topology: str, compute: str) -> None:
    experiment = Experiment(scenario(topology, attack, compute))
    expected = plain_loop(experiment, attack, "lagged")
    result = simulate(experiment)
    assert result.summary["telemetry"]["rounds"]["all"]["clipped"] > 0
    for client, (w, w_expected) in enumerate(zip(result.models.vectors, expected, strict=True)):
        torch.testing.assert_close(
            w, w_expected, rtol=1e-4, atol=1e-5, msg=lambda m, c=client: f"client {c}: {m}"
        )
        assert not torch.equal(w, experiment.initial_model(client)), (
            "nothing was learnt, so nothing was tested"
        )


def test_algorithm_2_with_the_current_threshold_equals_the_plain_loop() -> None:
    experiment = Experiment(scenario("complete", "sign_flip", "constant", threshold="current"))
    expected = plain_loop(experiment, "sign_flip", "current")
    lagged = plain_loop(experiment, "sign_flip", "lagged")
    for w, w_expected in zip(simulate(experiment).models.vectors, expected, strict=True):
        torch.testing.assert_close(w, w_expected, rtol=1e-4, atol=1e-5)
    assert any(not torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(expected, lagged, strict=True))


def test_direction_and_step_follow_the_learning_rate_of_the_round() -> None:
    experiment = Experiment(scenario("ring", "none", "lognormal", schedule=HALVED))
    expected = plain_loop(experiment, "none", "lagged")
    for w, w_expected in zip(simulate(experiment).models.vectors, expected, strict=True):
        torch.testing.assert_close(w, w_expected, rtol=1e-4, atol=1e-5)
    constant = simulate(scenario("ring", "none", "lognormal")).models.vectors
    assert not any(torch.allclose(a, b, atol=1e-3) for a, b in zip(constant, expected, strict=True))
