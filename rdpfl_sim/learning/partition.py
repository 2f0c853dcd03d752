"""Assign training examples to clients, and test examples with the same label mix.

A partition returns one sorted array of indices per client. The arrays are disjoint and cover the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.components.options import Count, Doc, Positive, round_up
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError

PARTITIONS = Registry("partition", Facts)
partition = PARTITIONS.register

Indices: TypeAlias = NDArray[np.int64]
MinSamples: TypeAlias = Annotated[Count, Doc("minimum number of training examples per client")]

_MAX_DRAWS = 1000
_MAX_CELLS = 10_000_000  # limits the time of all draws when there are many clients


@partition
def dirichlet(
    labels: Indices,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[Positive, Doc("small: few classes per client; large: nearly iid")] = 0.3,
    min_samples: MinSamples = 10,
) -> list[Indices]:
    """Split each class in proportions drawn from Dirichlet(alpha), so label mixes and sizes differ.

    The draw is repeated until every client has `min_samples` examples. Hsu, Qi and Brown (2019),
    Measuring the effects of non-identical data distribution; Yurochkin et al. (ICML 2019).
    """
    _check_enough_examples(labels, num_clients, min_samples)
    class_sizes = np.bincount(labels)
    num_draws = max(1, min(_MAX_DRAWS, _MAX_CELLS // (num_clients * len(class_sizes))))
    best = 0
    for _ in range(num_draws):
        shares = rng.dirichlet(np.full(num_clients, alpha), size=len(class_sizes))
        ends = (shares.cumsum(axis=1) * class_sizes[:, None]).astype(np.int64)
        ends[:, -1] = class_sizes  # rounding must not lose the last example
        counts = np.diff(ends, axis=1, prepend=0)
        best = max(best, int(counts.sum(axis=0).min()))
        if best >= min_samples:
            break
    else:
        raise OptionError(
            "min_samples",
            f"in {num_draws} draws for {num_clients} clients the smallest shard had at most {best} examples; "
            f"lower min_samples, raise alpha ({alpha:g}), or use fewer clients or more data",
        )
    owner = np.empty(len(labels), dtype=np.int64)
    owner[_shuffled_by_class(labels, rng)] = np.repeat(
        np.tile(np.arange(num_clients), len(class_sizes)), counts.ravel()
    )
    return _examples_per_client(owner, np.arange(len(labels)), num_clients)


@partition
def iid(
    labels: Indices, num_clients: int, rng: np.random.Generator, *, min_samples: MinSamples = 1
) -> list[Indices]:
    """Shuffle the examples and split them evenly; sizes differ by at most one."""
    _check_enough_examples(labels, num_clients, min_samples)
    owner = rng.permutation(np.arange(len(labels)) % num_clients)
    return _examples_per_client(owner, np.arange(len(labels)), num_clients)


@partition
def shards(
    labels: Indices,
    num_clients: int,
    rng: np.random.Generator,
    *,
    per_client: Annotated[Count, Doc("pieces per client, each of one or two classes")] = 2,
    min_samples: MinSamples = 1,
) -> list[Indices]:
    """Sort the examples by label, cut them into equal pieces, and assign each client a few at random.

    McMahan et al. (AISTATS 2017), Communication-efficient learning of deep networks.
    """
    _check_enough_examples(labels, num_clients, min_samples)
    num_pieces = num_clients * per_client
    smallest = len(labels) // num_pieces
    if smallest == 0:
        raise OptionError(
            "per_client", f"{num_clients} clients need {num_pieces} pieces; there are {len(labels)} examples"
        )
    if smallest * per_client < min_samples:
        raise OptionError(
            "min_samples",
            f"a piece size of {smallest} guarantees only {smallest * per_client} examples per client",
        )
    piece = np.arange(len(labels)) * num_pieces // len(labels)
    client_of_piece = rng.permutation(num_pieces) // per_client
    owner = np.empty(len(labels), dtype=np.int64)
    owner[_shuffled_by_class(labels, rng)] = client_of_piece[piece]
    return _examples_per_client(owner, np.arange(len(labels)), num_clients)


def split_validation(
    shards: Sequence[Indices], fraction: float, stream: Callable[[int], np.random.Generator]
) -> tuple[list[Indices], list[Indices]]:
    """Return the training and the validation examples of every client, sorted; `stream` is per client.

    Of n examples, ceil(fraction n) are drawn for validation, at least one. No client may be left without
    training examples.
    """
    training, validation = [], []
    for client, shard in enumerate(shards):
        num_held_out = max(1, round_up(fraction * len(shard)))
        if num_held_out >= len(shard):
            have = f"client {client} has {len(shard)} {'example' if len(shard) == 1 else 'examples'}"
            raise OptionError("validation_fraction", f"leaves none for training: {have}")
        is_held_out = np.zeros(len(shard), dtype=bool)
        is_held_out[stream(client).permutation(len(shard))[:num_held_out]] = True
        training.append(shard[~is_held_out])
        validation.append(shard[is_held_out])
    return training, validation


def split_test(
    train_labels: Indices,
    shards: Sequence[Indices],
    test_labels: Indices,
    num_classes: int,
    rng: np.random.Generator,
) -> list[Indices]:
    """Return one test set per client with the label mix of its training shard; disjoint where possible.

    Test examples of class c are assigned in proportion to the clients' training examples of class c by
    systematic sampling: every client gets its quota rounded down or up, and exactly its quota on average.
    Classes without training examples are omitted.

    A client whose quotas are all rounded to zero gets one example of its most common class from a client with
    several examples. If there is no such client, it shares an example with another client. If none of its
    classes is in the test set, the first class of the test set is used.
    """
    assert len(test_labels) > 0, "personal test sets need a test set"
    num_clients = len(shards)
    trainer = np.repeat(np.arange(num_clients), [len(shard) for shard in shards])
    cells = train_labels[np.concatenate(shards)] * num_clients + trainer
    counts = np.bincount(cells, minlength=num_classes * num_clients).reshape(num_classes, num_clients)
    class_ends = np.bincount(test_labels, minlength=num_classes).cumsum()
    by_class = np.split(_shuffled_by_class(test_labels, rng), class_ends[:-1])

    owner = _assign_test_examples(counts, by_class, rng)
    sharers, shared = _fill_empty_test_sets(owner, counts, by_class, rng)
    owned = np.flatnonzero(owner >= 0)
    return _examples_per_client(
        np.concatenate([owner[owned], sharers]), np.concatenate([owned, shared]), num_clients
    )


def _assign_test_examples(counts: Indices, by_class: list[Indices], rng: np.random.Generator) -> Indices:
    """Return the owner of each test example, or -1, in proportion to `counts` (class, client)."""
    owner = np.full(sum(map(len, by_class)), -1, dtype=np.int64)
    clients = np.arange(counts.shape[1])
    for examples, trained in zip(by_class, counts.cumsum(axis=1), strict=True):
        total = trained[-1]
        if total > 0:
            # floor(quota_1 + .. + quota_k + U) with U uniform in [0, 1), in exact integer arithmetic.
            ends = (trained * len(examples) + rng.integers(total)) // total
            owner[examples] = np.repeat(clients, np.diff(ends, prepend=0))
    return owner


def _fill_empty_test_sets(
    owner: Indices, counts: Indices, by_class: list[Indices], rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Reassign spare examples to clients that have none. This modifies `owner`.

    Return the clients for which no spare example is left, with the shared example of each.
    """
    owners, kept = np.unique(owner, return_index=True)
    spare = np.ones(len(owner), dtype=bool)
    spare[kept] = False  # every owner keeps one example
    empty = np.setdiff1d(np.flatnonzero(counts.sum(axis=0)), owners)
    tested = np.array([len(examples) > 0 for examples in by_class])
    commonest = np.where(tested[:, None], counts[:, empty], -1).argmax(axis=0)
    sharers, shared = [empty[:0]], [empty[:0]]
    for label in np.unique(commonest):
        examples = by_class[label]
        receivers = rng.permutation(empty[commonest == label])
        given = examples[spare[examples]][: len(receivers)]
        owner[given] = receivers[: len(given)]
        sharers.append(receivers[len(given) :])
        shared.append(rng.choice(examples, len(receivers) - len(given)))
    return np.concatenate(sharers), np.concatenate(shared)


def _check_enough_examples(labels: Indices, num_clients: int, min_samples: int) -> None:
    if len(labels) < num_clients * min_samples:
        raise OptionError(
            "min_samples",
            f"{num_clients} clients with {min_samples} examples each need {num_clients * min_samples}; "
            f"there are {len(labels)}",
        )


def _shuffled_by_class(labels: Indices, rng: np.random.Generator) -> Indices:
    """Return all indices sorted by class, in random order within a class."""
    order = rng.permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def _examples_per_client(owner: Indices, examples: Indices, num_clients: int) -> list[Indices]:
    """Return the sorted examples of each client, given the owner of each example."""
    ends = np.bincount(owner, minlength=num_clients).cumsum()
    return np.split(examples[np.lexsort((examples, owner))], ends[:-1])
