from typing import Annotated

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rdpfl_sim.attacks.equivocation import EQUIVOCATIONS, mirrored, same, scaled
from rdpfl_sim.components.schema import Component, OneOf, Strict

U = torch.tensor([1.0, 2.0, -4.0])
M = torch.tensor([5.0, 0.0, -4.0])

numbers = st.integers(-1000, 1000)
vectors = st.lists(numbers, min_size=3, max_size=3).map(lambda entries: torch.tensor(entries).double())
draws = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


def test_without_equivocation_all_recipients_receive_the_attack() -> None:
    assert [same(U, M, draw).tolist() for draw in (0.001, 0.5, 0.999)] == [M.tolist()] * 3


@pytest.mark.parametrize(
    ("draw", "sent"),
    [
        (0.25, [4.0, 0.5, -4.0]),  # s = 0.75
        (0.5, [5.0, 0.0, -4.0]),  # s = 1
        (0.75, [6.0, -0.5, -4.0]),  # s = 1.25
    ],
)
def test_scaled_sends_half_to_one_and_a_half_of_the_attack_by_default(draw: float, sent: list[float]) -> None:
    assert scaled(U, M, draw).tolist() == sent


@pytest.mark.parametrize(
    ("draw", "sent"),
    [
        (0.25, [-1.0, 3.0, -4.0]),  # s = -0.5
        (0.5, [1.0, 2.0, -4.0]),  # s = 0: the honest update
        (0.75, [3.0, 1.0, -4.0]),  # s = 0.5
    ],
)
def test_scaled_can_reverse_the_attack_or_send_the_honest_update(draw: float, sent: list[float]) -> None:
    assert scaled(U, M, draw, low=-1.0, high=1.0).tolist() == sent


def test_mirrored_sends_opposite_attacks() -> None:
    assert mirrored(U, M, 0.25).tolist() == [5.0, 0.0, -4.0]
    assert mirrored(U, M, 0.75).tolist() == [-3.0, 4.0, -4.0]


@given(vectors, vectors, draws, draws)
def test_scaled_messages_are_on_the_line_through_the_update_and_the_attack(
    u: torch.Tensor, m: torch.Tensor, draw: float, other: float
) -> None:
    sent = scaled(u, m, draw, low=0.0, high=1.0)
    assert torch.allclose(sent, torch.lerp(u, m, draw), atol=1e-9)
    farther = (scaled(u, m, max(draw, other)) - u).norm() - (scaled(u, m, min(draw, other)) - u).norm()
    assert farther >= -1e-9, "a larger draw is a larger attack"


@given(vectors, vectors, draws)
def test_mirrored_messages_average_to_the_update(u: torch.Tensor, m: torch.Tensor, draw: float) -> None:
    opposite = 1.0 - draw if draw != 0.5 else 0.25
    assert torch.equal((mirrored(u, m, draw) + mirrored(u, m, opposite)) / 2, u)


@pytest.mark.parametrize("name", EQUIVOCATIONS)
@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_equivocation_returns_an_update_and_does_not_change_its_inputs(name: str, draw: float) -> None:
    u, m = torch.tensor([1.0, 2.0], dtype=torch.float32), torch.tensor([3.0, -2.0], dtype=torch.float32)
    sent = EQUIVOCATIONS[name](u, m, draw)
    assert (sent.shape, sent.dtype) == (u.shape, u.dtype)
    assert (u.tolist(), m.tolist()) == ([1.0, 2.0], [3.0, -2.0])


@pytest.mark.parametrize("name", EQUIVOCATIONS)
def test_honest_update_is_sent_to_all_recipients_unchanged(name: str) -> None:
    assert {tuple(EQUIVOCATIONS[name](U, U, draw).tolist()) for draw in (0.1, 0.4, 0.6, 0.9)} == {
        tuple(U.tolist())
    }


class Section(Strict):
    equivocation: Annotated[Component, OneOf(EQUIVOCATIONS)]


def test_factor_too_large_for_an_update_is_rejected() -> None:
    Section.model_validate({"equivocation": {"name": "scaled", "high": 1e30}})
    with pytest.raises(ValidationError):
        Section.model_validate({"equivocation": {"name": "scaled", "high": 1e31}})
