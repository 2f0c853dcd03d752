"""Bristle style: clients exchange output layers, and weight them per class by their F1 on their own data.

Verbraeken, de Vos and Pouwelse, "Bristle: Decentralized Federated Learning in Byzantine, Non-i.i.d.
Environments", arXiv:2110.11006. The paper freezes the body, selects output layers by distance and weights
them by sigmoids of their F1 scores on a small test set. Here the weights are the F1 scores on a batch of the
client's own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, PositiveFraction, round_up
from rdpfl_sim.errors import OptionError
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Outgoing,
    RunInfo,
    State,
    Trained,
    TrainingTask,
    is_finite,
    layer_starts,
    method,
)
from rdpfl_sim.methods.gossip import ModelExchange, distances
from rdpfl_sim.vectors import clamp_finite


@method
class Bristle(ModelExchange):
    """Own body; the nearest neighbours' output rows, weighted by their F1 on own data (Bristle style).

    For a class missing from the client's batch, rows are weighted by the mean F1 over the other classes.
    In that case the client's own row is used only if all neighbours have weight 0. Weight removed from stale
    messages is added to the client's own row. If the client's own model has diverged, it is left unchanged.
    """

    batched = False

    def __init__(
        self,
        run: RunInfo,
        *,
        body: Annotated[
            Literal["frozen", "local"],
            Doc("layers below the output layer: frozen (as in the paper) or trained locally"),
        ] = "frozen",
        keep: Annotated[PositiveFraction, Doc("fraction of received layers to test, nearest first")] = 0.7,
    ) -> None:
        starts = layer_starts(run.layers)
        self.split = starts[-1] if starts else 0
        output = [layer.shape for layer in run.layers if layer.start >= self.split]
        if output and [len(shape) for shape in output] != [2, 1]:
            raise OptionError("", f"needs an output layer with weights and biases; its shapes are {output}")
        self.frozen = body == "frozen"
        self.keep = keep

    def training(self, state: State) -> TrainingTask:
        """Train only the output layer if the body is frozen."""
        if not self.frozen:
            return TrainingTask(state.w)
        mask = torch.ones_like(state.w, dtype=torch.bool)
        mask[:, : self.split] = False
        return TrainingTask(state.w, mask=mask)

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Send the trained output layers."""
        return state, Outgoing(trained.w[:, self.split :])

    def reference_point(self, state: State) -> Tensor:
        """Return the output layers before training."""
        return state.w[:, self.split :]

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Keep the client's own body and mix the output layers."""
        x, sent = trained.w, trained.w[:, self.split :]
        num_accepted = torch.zeros(1, dtype=torch.int64)
        if inbox.num_messages == 0 or not is_finite(x[0]):
            return State(x), self.displacement(state, sent, sent, num_accepted)
        [client] = clients
        weights = self.class_weights(x[0], inbox, client)
        head = clamp_finite(mixed_rows(torch.cat([sent, inbox.vectors[0]]), weights)).unsqueeze(0)
        num_accepted[0] = (weights[1:].sum(dim=1) > 0).sum()
        report = self.displacement(state, sent, head, num_accepted)
        return State(torch.cat([x[:, : self.split], head], dim=1)), report

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the distance of each output layer from the client's own, and its mean weight."""
        [client] = clients
        [x] = trained.w
        weights = torch.zeros(1, inbox.num_messages)
        if is_finite(x):
            weights = self.class_weights(x, inbox, client)[1:].mean(dim=1).unsqueeze(0)
        return MessageStats(distances(trained.w[:, self.split :], inbox), weights.to(x.device))

    def class_weights(self, x: Tensor, inbox: Inbox, client: ClientView) -> Tensor:
        """Return the weight of each output layer per class (1 + m, classes), the client's own first."""
        batch, body, [received] = client.batch(), x[: self.split], inbox.vectors
        num_tested = round_up(self.keep * len(received))
        near = distances(x[None, self.split :], inbox)[0].argsort(stable=True)[:num_tested].tolist()
        own = f1_by_class(batch.logits(x), batch.labels)
        scores = torch.zeros(1 + len(received), len(own), dtype=torch.float64)
        scores[0] = own
        for place in near:
            model = torch.cat([body, received[place]])
            scores[1 + place] = f1_by_class(batch.logits(model), batch.labels)
        absent = torch.ones(len(own), dtype=torch.bool)
        absent[batch.labels.cpu()] = False
        scores[:, absent] = scores[:, ~absent].mean(dim=1, keepdim=True)
        scores[0, absent] = 0.0
        scores[0, scores.sum(dim=0) == 0] = 1.0  # no layer has any weight
        shares = scores / scores.sum(dim=0)
        shares[1:] *= inbox.weights[0].cpu().unsqueeze(1)
        shares[0] = 1.0 - shares[1:].sum(dim=0)  # including the weight removed from stale messages
        return shares.clamp_(min=0.0)


def f1_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the F1 score of each class, 2 hits / (predicted + actual), (classes,); 0 if both counts are 0.

    An example with a logit that is not finite has no predicted class.
    """
    num_classes = logits.shape[1]
    answered = logits.isfinite().all(dim=1)
    predicted = logits.argmax(dim=1)
    hits = torch.bincount(labels[answered & (predicted == labels)], minlength=num_classes)
    both = torch.bincount(predicted[answered], minlength=num_classes)
    both += torch.bincount(labels, minlength=num_classes)
    return (2 * hits.double() / both.clamp(min=1)).cpu()


def mixed_rows(heads: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of the output layers (m, C h + C), weighted per class by `weights` (m, C)."""
    num_classes = weights.shape[1]
    shares = weights.to(heads)
    matrices = heads[:, :-num_classes].view(len(heads), num_classes, -1)
    rows = torch.zeros_like(matrices[0])
    for share, matrix in zip(shares, matrices, strict=True):
        rows += share.unsqueeze(1) * matrix
    biases = (shares * heads[:, -num_classes:]).sum(dim=0)
    return torch.cat([rows.reshape(-1), biases])
