from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.partition import PARTITIONS, Indices, dirichlet, iid, shards, split_test


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(num_samples: int, num_classes: int = 10, seed: int = 9) -> Indices:
    return generator(seed).permutation(np.arange(num_samples) % num_classes)


def label_counts(labels: Indices, parts: list[Indices], num_classes: int = 10) -> Indices:
    return np.array([np.bincount(labels[part], minlength=num_classes) for part in parts])


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=list(PARTITIONS))
@given(
    seed=st.integers(0, 2**32),
    num_clients=st.integers(1, 12),
    num_classes=st.integers(1, 6),
    extra=st.integers(0, 50),
)
@settings(max_examples=30, deadline=None)
def test_a_partition_is_disjoint_sorted_and_covers_everything(
    partition: Callable[..., list[Indices]], seed: int, num_clients: int, num_classes: int, extra: int
) -> None:
    labels = generator(seed).integers(0, num_classes, size=40 * num_clients + extra)
    parts = partition(labels, num_clients, generator(seed), min_samples=3)
    assert len(parts) == num_clients
    assert min(len(part) for part in parts) >= 3
    assert all((np.diff(part) > 0).all() for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=list(PARTITIONS))
def test_a_seed_determines_a_partition(partition: Callable[..., list[Indices]]) -> None:
    labels = balanced(500)
    first, again, other = (partition(labels, 5, generator(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", PARTITIONS)
def test_default_options_are_valid(name: str) -> None:
    OneOf(PARTITIONS).validate(name)


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=list(PARTITIONS))
def test_too_few_examples_for_all_clients_are_rejected_immediately(
    partition: Callable[..., list[Indices]],
) -> None:
    with pytest.raises(
        OptionError, match="10 clients with 11 examples each need 110; there are 109"
    ) as error:
        partition(balanced(109), 10, generator(), min_samples=11)
    assert error.value.option == "min_samples"


def test_dirichlet_error_contains_the_best_draw_if_no_draw_is_valid() -> None:
    with pytest.raises(
        OptionError, match=r"in 1000 draws for .* at most 0 examples; .*raise alpha \(0.01\)"
    ) as error:
        dirichlet(balanced(200), 20, generator(), alpha=0.01, min_samples=10)
    assert error.value.option == "min_samples"


def test_small_alpha_gives_few_classes_and_large_alpha_all_evenly() -> None:
    labels = balanced(10_000)

    def largest_class_share(alpha: float) -> float:
        counts = label_counts(labels, dirichlet(labels, 10, generator(), alpha=alpha))
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    assert largest_class_share(1000.0) < 0.12
    assert 0.2 < largest_class_share(0.3) < 0.6
    assert largest_class_share(0.05) > 0.6


def test_dirichlet_shares_have_the_variance_of_the_distribution() -> None:
    # The share of one client of n is Beta(a, (n-1) a): mean 1/n, variance (n-1) / (n^2 (n a + 1)).
    labels, num_clients, alpha = balanced(20_000, num_classes=20), 5, 0.5
    shares = np.concatenate(
        [
            label_counts(labels, dirichlet(labels, num_clients, generator(seed), alpha=alpha), 20) / 1000
            for seed in range(20)
        ]
    )
    assert shares.mean() == pytest.approx(0.2)
    assert shares.var() == pytest.approx(4 / (25 * 3.5), rel=0.1)


def test_dirichlet_distributes_examples_of_a_class_at_random() -> None:
    parts = dirichlet(np.zeros(1000, dtype=np.int64), 2, generator(), alpha=50.0)
    assert (np.diff(parts[0]) > 1).any()


def test_iid_sizes_differ_by_one_at_most() -> None:
    parts = iid(balanced(103), 10, generator())
    assert sorted(len(part) for part in parts) == [10] * 7 + [11] * 3


def test_shards_give_each_client_pieces_of_few_classes() -> None:
    labels = balanced(400)
    counts = label_counts(labels, shards(labels, 10, generator(), per_client=2))
    assert (counts.sum(axis=1) == 40).all()
    assert set(counts.ravel()) <= {0, 20, 40}
    assert ((counts > 0).sum(axis=1) <= 2).all()


def test_more_shards_than_examples_are_rejected() -> None:
    with pytest.raises(OptionError, match="5 clients need 15 pieces; there are 14 examples") as error:
        shards(balanced(14), 5, generator(), per_client=3)
    assert error.value.option == "per_client"


def test_shards_reject_a_minimum_that_their_pieces_cannot_guarantee() -> None:
    labels = balanced(39)  # 10 clients, 20 pieces of 1 or 2
    assert min(len(part) for part in shards(labels, 10, generator(), min_samples=2)) >= 2
    with pytest.raises(OptionError, match="a piece size of 1 guarantees only 2") as error:
        shards(labels, 10, generator(), min_samples=3)
    assert error.value.option == "min_samples"


def test_a_hundred_thousand_clients_are_practical() -> None:
    labels = balanced(1_000_000)
    parts = dirichlet(labels, 100_000, generator(), alpha=100.0, min_samples=1)
    assert len(parts) == 100_000
    assert sum(map(len, parts)) == 1_000_000


def test_personal_test_sets_follow_the_training_label_mix() -> None:
    train, test = balanced(4000), balanced(1000)
    parts = dirichlet(train, 8, generator())
    personal = split_test(train, parts, test, 10, generator())
    quotas = label_counts(train, parts) / 4  # a quarter as many test as training examples in each class
    assert (np.abs(label_counts(test, personal) - quotas) < 1).all()
    assert np.array_equal(np.sort(np.concatenate(personal)), np.arange(1000))
    assert all((np.diff(part) > 0).all() for part in personal)


def test_test_quotas_are_rounded_without_bias() -> None:
    train, test = np.zeros(70, dtype=np.int64), np.zeros(8, dtype=np.int64)
    parts = np.split(np.arange(70), [10, 24, 42])  # 10, 14, 18 and 28 examples
    quotas = np.array([10, 14, 18, 28]) * 8 / 70
    sizes = np.array(
        [[len(part) for part in split_test(train, parts, test, 1, generator(seed))] for seed in range(1500)]
    )
    assert (np.abs(sizes - quotas) < 1).all()
    assert (sizes.sum(axis=1) == 8).all()
    assert np.abs(sizes.mean(axis=0) - quotas).max() < 0.05


def test_a_client_that_rounding_leaves_empty_gets_one_from_a_client_that_has_more() -> None:
    # Client 0 has 1 of 100 training examples and a quota of 0.1 of 10 test examples.
    train, test = np.zeros(100, dtype=np.int64), np.zeros(10, dtype=np.int64)
    for seed in range(20):
        first, second = split_test(train, [np.arange(1), np.arange(1, 100)], test, 1, generator(seed))
        assert (len(first), len(second)) == (1, 9)
        assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(10))


def test_clients_share_examples_of_their_most_common_class_if_there_are_too_few() -> None:
    train = np.array([0, 0, 1] * 5 + [1, 1, 0] * 5)
    test = np.array([0, 1])
    personal = split_test(train, np.split(np.arange(30), 10), test, 2, generator())
    assert all(len(part) == 1 for part in personal)
    assert set(np.concatenate(personal)) == {0, 1}
    assert sum(part[0] == 0 for part in personal[:5]) >= 4  # rounding may give one client the other class
    assert sum(part[0] == 1 for part in personal[5:]) >= 4


@given(
    seed=st.integers(0, 2**32),
    num_clients=st.integers(1, 20),
    num_train=st.integers(20, 60),
    num_test=st.integers(1, 60),
    num_classes=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_every_client_with_examples_has_a_personal_test_set(
    seed: int, num_clients: int, num_train: int, num_test: int, num_classes: int
) -> None:
    rng = generator(seed)
    train, test = rng.integers(0, num_classes, num_train), rng.integers(0, num_classes, num_test)
    parts = iid(train, num_clients, rng)
    personal = split_test(train, parts, test, num_classes, rng)
    assert all(len(part) >= 1 for part in personal)
    handed_out = np.concatenate(personal)
    num_shared = len(handed_out) - len(np.unique(handed_out))
    assert num_shared <= sum(len(part) == 1 for part in personal), (
        "only a client without other images shares one"
    )
    assert set(np.flatnonzero(np.isin(test, train))) <= set(handed_out)


def test_a_class_without_training_examples_is_not_in_the_personal_test_sets() -> None:
    train, test = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    personal = split_test(train, [np.array([0, 2]), np.array([1, 3])], test, 3, generator())
    assert np.array_equal(np.sort(np.concatenate(personal)), [0, 1, 2, 3])


def test_a_client_whose_classes_are_not_tested_gets_another_class() -> None:
    train, test = np.array([0, 0, 1, 1]), np.array([1, 1, 1])
    first, second = split_test(train, [np.array([0, 1]), np.array([2, 3])], test, 2, generator())
    assert (len(first), len(second)) == (1, 2)


def test_a_client_without_examples_has_no_personal_test_set() -> None:
    train, test = np.array([0, 0]), np.array([0, 0, 0])
    first, second = split_test(train, [np.array([0, 1]), np.array([], dtype=np.int64)], test, 1, generator())
    assert (len(first), len(second)) == (3, 0)
