from typing import Annotated

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.table import Strict
from rdpfl_sim.maths.attacks.equivocation import EQUIVOCATIONS, mirrored, same, scaled

U = torch.tensor([1.0, 2.0, -4.0])
M = torch.tensor([5.0, 0.0, -4.0])

numbers = st.integers(-1000, 1000)
vectors = st.lists(numbers, min_size=3, max_size=3).map(lambda entries: torch.tensor(entries).double())
draws = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


def test_same_tells_everybody_the_lie() -> None:
    assert [same(U, M, draw).tolist() for draw in (0.001, 0.5, 0.999)] == [M.tolist()] * 3


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (0.25, [4.0, 0.5, -4.0]),  # s = 0.75
        (0.5, [5.0, 0.0, -4.0]),  # s = 1
        (0.75, [6.0, -0.5, -4.0]),  # s = 1.25
    ],
)
def test_scaled_lie_is_half_to_one_and_a_half_of_it_by_default(draw: float, told: list[float]) -> None:
    assert scaled(U, M, draw).tolist() == told


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (0.25, [-1.0, 3.0, -4.0]),  # s = -0.5
        (0.5, [1.0, 2.0, -4.0]),  # s = 0: the truth
        (0.75, [3.0, 1.0, -4.0]),  # s = 0.5
    ],
)
def test_scaled_lie_can_be_reversed_and_can_be_the_truth(draw: float, told: list[float]) -> None:
    assert scaled(U, M, draw, low=-1.0, high=1.0).tolist() == told


def test_mirrored_lies_are_opposite() -> None:
    assert mirrored(U, M, 0.25).tolist() == [5.0, 0.0, -4.0]
    assert mirrored(U, M, 0.75).tolist() == [-3.0, 4.0, -4.0]


@given(vectors, vectors, draws, draws)
def test_scaled_lies_lie_on_the_line_through_truth_and_lie(
    u: torch.Tensor, m: torch.Tensor, draw: float, other: float
) -> None:
    told = scaled(u, m, draw, low=0.0, high=1.0)
    assert torch.allclose(told, torch.lerp(u, m, draw), atol=1e-9)
    farther = (scaled(u, m, max(draw, other)) - u).norm() - (scaled(u, m, min(draw, other)) - u).norm()
    assert farther >= -1e-9, "a larger draw is a larger lie"


@given(vectors, vectors, draws)
def test_mirrored_lies_average_to_the_truth(u: torch.Tensor, m: torch.Tensor, draw: float) -> None:
    opposite = 1.0 - draw if draw != 0.5 else 0.25
    assert torch.equal((mirrored(u, m, draw) + mirrored(u, m, opposite)) / 2, u)


@pytest.mark.parametrize("name", EQUIVOCATIONS)
@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_what_is_told_is_an_update_and_the_inputs_stay_as_they_are(name: str, draw: float) -> None:
    u, m = torch.tensor([1.0, 2.0], dtype=torch.float32), torch.tensor([3.0, -2.0], dtype=torch.float32)
    told = EQUIVOCATIONS[name](u, m, draw)
    assert (told.shape, told.dtype) == (u.shape, u.dtype)
    assert (u.tolist(), m.tolist()) == ([1.0, 2.0], [3.0, -2.0])


@pytest.mark.parametrize("name", EQUIVOCATIONS)
def test_a_truth_is_told_to_everybody_alike(name: str) -> None:
    assert {tuple(EQUIVOCATIONS[name](U, U, draw).tolist()) for draw in (0.1, 0.4, 0.6, 0.9)} == {
        tuple(U.tolist())
    }


class Section(Strict):
    equivocation: Annotated[Component, OneOf(EQUIVOCATIONS)]


def test_factor_beyond_what_an_update_can_hold_is_refused() -> None:
    Section.model_validate({"equivocation": {"name": "scaled", "high": 1e30}})
    with pytest.raises(ValidationError):
        Section.model_validate({"equivocation": {"name": "scaled", "high": 1e31}})
