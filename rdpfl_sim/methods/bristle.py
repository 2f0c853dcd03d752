"""Bristle style: only output layers are exchanged, and judged class by class on the own data.

Verbraeken, de Vos and Pouwelse, "Bristle: Decentralized Federated Learning in Byzantine, Non-i.i.d.
Environments", arXiv:2110.11006: a frozen body, a prioritiser by distance, an integrator by performance on
each class. Where the paper tunes sigmoids of F1 scores on a small test set, the F1 scores on a batch of the
own data are the weights here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, PositiveFraction
from rdpfl_sim.errors import OptionError
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local, Payload, Received, Work, is_finite
from rdpfl_sim.methods.gossip import ModelExchange, distances, finite
from rdpfl_sim.methods.registry import method
from rdpfl_sim.rounding import round_up


@method
class Bristle(ModelExchange):
    """w <- own body, output rows averaged by their F1 on own data, of the nearest neighbours (Bristle style).

    Of a class that the own batch does not hold, the rows are weighted by the mean F1 over those that it does,
    and the own row counts only if no neighbour has earned any trust. What a stale message loses is the own
    row's. A client whose own model has diverged goes on as it is.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        body: Annotated[
            Literal["frozen", "local"],
            Doc("whether all but the output layer stays as it started, as in the paper, or is trained"),
        ] = "frozen",
        keep: Annotated[PositiveFraction, Doc("fraction of what arrived, the nearest, that is judged")] = 0.7,
    ) -> None:
        starts = base.layer_starts(settings.layers)
        self.split = starts[-1] if starts else 0
        output = [layer.shape for layer in settings.layers if layer.start >= self.split]
        if output and [len(shape) for shape in output] != [2, 1]:
            raise OptionError("", f"needs an output layer with weights and biases; its shapes are {output}")
        self.frozen = body == "frozen"
        self.keep = keep

    def work(self, state: base.State) -> Work:
        """K steps, of the output layer alone if the body is frozen."""
        if not self.frozen:
            return Work(state.w)
        mask = torch.ones_like(state.w, dtype=torch.bool)
        mask[: self.split] = False
        return Work(state.w, mask=mask)

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The trained output layer."""
        return state, Payload(own.w_tilde[self.split :])

    def origin(self, state: base.State) -> Tensor:
        """The output layer before its training."""
        return state.w[self.split :]

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The own body, and the mixture of output layers."""
        x, sent = own.w_tilde, own.w_tilde[self.split :]
        if not received or not is_finite(x):
            return base.State(x), {"num_accepted": 0, **self.displacement(state, sent, sent)}
        trust = self.trust(x, received, home)
        head = finite(mixed_rows(torch.stack([sent, *(m.vector for m in received)]), trust))
        num_accepted = int((trust[1:].sum(dim=1) > 0).sum())
        report = {"num_accepted": num_accepted, **self.displacement(state, sent, head)}
        return base.State(torch.cat([x[: self.split], head])), report

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each output layer is from the own, and its mean weight over the classes."""
        x = own.w_tilde
        weights = [0.0] * len(received)
        if is_finite(x):
            weights = self.trust(x, received, home)[1:].mean(dim=1).tolist()
        return base.Inspection(distances(x[self.split :], received), None, weights)

    def trust(self, x: Tensor, received: Sequence[Received], home: base.Home) -> Tensor:
        """The weight of each output layer, the own first, in each class: (1 + n, classes)."""
        batch = home.batch()
        lengths = distances(x[self.split :], received)
        num_judged = round_up(self.keep * len(received))
        near = sorted(range(len(received)), key=lambda place: (lengths[place], place))[:num_judged]
        own = f1_by_class(batch.logits(x), batch.labels)
        scores = torch.zeros(1 + len(received), len(own), dtype=torch.float64)
        scores[0] = own
        for place in near:
            model = torch.cat([x[: self.split], received[place].vector])
            scores[1 + place] = f1_by_class(batch.logits(model), batch.labels)
        foreign = torch.ones(len(own), dtype=torch.bool)
        foreign[batch.labels.cpu()] = False
        scores[:, foreign] = scores[:, ~foreign].mean(dim=1, keepdim=True)
        scores[0, foreign] = 0.0
        scores[0, scores.sum(dim=0) == 0] = 1.0  # nobody knows better
        shares = scores / scores.sum(dim=0)
        shares[1:] *= torch.tensor([[message.weight] for message in received], dtype=torch.float64)
        shares[0] = 1.0 - shares[1:].sum(dim=0)  # what a stale message loses
        return shares.clamp_(min=0.0)


def f1_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """2 hits / (predicted + actual) of every class, (classes,); 0 for a class that is neither.

    An answer with a logit that is not finite is no answer.
    """
    num_classes = logits.shape[1]
    answered = logits.isfinite().all(dim=1)
    predicted = logits.argmax(dim=1)
    hits = torch.bincount(labels[answered & (predicted == labels)], minlength=num_classes)
    both = torch.bincount(predicted[answered], minlength=num_classes)
    both += torch.bincount(labels, minlength=num_classes)
    return (2 * hits.double() / both.clamp(min=1)).cpu()


def mixed_rows(heads: Tensor, trust: Tensor) -> Tensor:
    """The mixture of output layers (m, C h + C), a weight row and a bias per class, with weights (m, C)."""
    num_classes = trust.shape[1]
    shares = trust.to(heads)
    weights = heads[:, :-num_classes].view(len(heads), num_classes, -1)
    rows = sum(share.unsqueeze(1) * row for share, row in zip(shares, weights, strict=True))
    biases = (shares * heads[:, -num_classes:]).sum(dim=0)
    assert isinstance(rows, Tensor)
    return torch.cat([rows.reshape(-1), biases])
