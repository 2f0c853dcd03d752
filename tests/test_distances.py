import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.vectors import blocks, distances_to, norms, squared_distances


def test_squared_distances_of_three_rows_equal_hand_computed_values() -> None:
    u = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
    assert squared_distances(u).tolist() == [[0, 25, 9], [25, 0, 16], [9, 16, 0]]


def test_distance_of_a_row_to_itself_is_zero() -> None:
    assert squared_distances(torch.ones(1, 3)).tolist() == [[0.0]]


@pytest.mark.parametrize("scale", [1.0, 1e38, 1e-38])
@given(seed=st.integers(0, 1000), num=st.integers(1, 7))
def test_squared_distances_agree_with_a_slow_sum(scale: float, seed: int, num: int) -> None:
    u = torch.randn(num, 3, generator=torch.Generator().manual_seed(seed)).clamp(-3, 3) * scale
    slow = [[sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in u.tolist()] for a in u.tolist()]
    assert squared_distances(u).tolist() == [pytest.approx(row, rel=1e-12) for row in slow]


def test_distances_of_close_rows_far_from_the_origin_are_accurate() -> None:
    u = torch.tensor([[1.0], [1.0 + 2.0**-23]]).repeat(1, 100)
    assert squared_distances(u)[0, 1].item() == pytest.approx(100 * 2.0**-46, rel=1e-12)


def test_distances_of_wide_rows_include_all_blocks() -> None:
    u = torch.tensor([[0.0], [2.0]]).repeat(1, 40_000)
    assert len(list(blocks(u))) > 1
    assert squared_distances(u)[0, 1].item() == pytest.approx(160_000, rel=1e-12)


def test_blocks_split_all_tensors_at_the_same_columns() -> None:
    v = torch.arange(40_000)
    pieces = list(blocks(torch.stack([v, -v]), v))
    assert all(torch.equal(rows[1], -piece) for rows, piece in pieces)
    assert torch.equal(torch.cat([piece for _, piece in pieces]), v)


@pytest.mark.parametrize("scale", [1.0, 1e38, 1e-15, 1e-38])
@given(seed=st.integers(0, 1000), num=st.integers(1, 7))
def test_norms_and_distances_agree_with_a_slow_sum(scale: float, seed: int, num: int) -> None:
    u = torch.randn(num + 1, 3, generator=torch.Generator().manual_seed(seed)).clamp(-3, 3) * scale
    x, rows = u[0], u[1:]
    expected = [
        sum((a - b) ** 2 for a, b in zip(row, x.tolist(), strict=True)) ** 0.5 for row in rows.tolist()
    ]
    assert distances_to(x, rows).tolist() == pytest.approx(expected, rel=1e-6)
    assert norms(rows).tolist() == pytest.approx(
        [sum(a**2 for a in row) ** 0.5 for row in rows.tolist()], rel=1e-6
    )


def test_distances_are_accurate_for_large_small_and_equal_rows_together() -> None:
    u = torch.tensor([3e38, 2.0, 1e-30, 0.0]).unsqueeze(1).repeat(1, 40_000)
    assert norms(u).tolist() == pytest.approx([6e40, 400.0, 2e-28, 0.0])
    assert distances_to(-u[0], u).tolist() == pytest.approx([1.2e41, 6e40, 6e40, 6e40])
    assert distances_to(u[1], u).tolist() == pytest.approx([6e40, 0.0, 400.0, 400.0])


def test_distance_from_a_vector_that_is_not_finite_is_not_finite() -> None:
    u = torch.ones(2, 3)
    assert distances_to(torch.tensor([0.0, torch.inf, 0.0]), u).tolist() == [torch.inf, torch.inf]
    assert distances_to(torch.tensor([0.0, torch.nan, 0.0]), u).isnan().all()
