import json
import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rdpfl_sim.simulation.checkpoint_file import CodecError, Decoder, Encoder


@dataclass(frozen=True)
class Note:
    text: str
    vector: Tensor | None = None
    answers: "Note | None" = None


class Pair(NamedTuple):
    first: Any
    second: Any


class Board:
    """A part that stores notes and has a callable method to clear them."""

    STATE = ("notes", "_num")
    CALLS = ("clear",)

    def __init__(self) -> None:
        self.notes: Any = []
        self._num = 0
        self.colour = "green"

    def clear(self) -> None:
        self.notes = []

    def burn(self) -> None:
        raise AssertionError("nobody may call this")


def there_and_back(value: Any, board: Board | None = None, classes: tuple[type, ...] = (Note, Pair)) -> Any:
    """Return a value after encoding it as JSON and decoding it for another board."""
    encoder = Encoder({"board": board or Board()}, classes)
    data = json.loads(json.dumps([encoder.encode(value), encoder.values]))
    return Decoder({"board": OTHER}, classes, data[1], encoder.tensors).decode(data[0])


OTHER = Board()


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -(2**70), 0.1 + 0.2, math.inf, -math.inf, "phase", b"\x00\xff", ""),
        *([], [1, [2]], (), (1, (2,)), {1, 2}, frozenset({3}), deque([1, 2])),
        *({}, {1: "a", None: "b", (1, 2): [3]}, Counter({"used": 2}), {"x": {2: frozenset({1})}}),
        *(Note("hello"), Pair(1, Note("in it"))),
    ],
    ids=repr,
)
def test_value_is_restored_with_its_type(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_and_the_order_of_keys_survive() -> None:
    back = there_and_back({3: math.nan, 1: 0.0, 2: 0.0})
    assert math.isnan(back[3])
    assert list(back) == [3, 1, 2]


def test_text_can_be_compared_by_identity_with_a_constant() -> None:
    assert there_and_back("".join(["trai", "ning"])) is "training".__str__()


def test_shared_values_stay_shared_and_equal_values_stay_separate() -> None:
    vector = torch.ones(2)
    note = Note("a", vector)
    one, other, equal, same_vector = there_and_back([note, note, Note("a", vector), vector])
    assert one is other
    assert equal is not one
    assert one.vector is equal.vector is same_vector


def test_value_may_refer_to_other_values() -> None:
    question = Note("question")
    first, second = there_and_back((Note("answer", answers=question), question))
    assert first.answers is second


def test_parts_and_their_methods_are_resolved_by_name() -> None:
    board = Board()
    assert there_and_back(board, board) is OTHER
    assert there_and_back(board.clear, board) == OTHER.clear


def test_only_the_declared_state_of_a_part_is_restored() -> None:
    board, other = Board(), Board()
    board.notes, board._num, board.colour = [Note("a")], 7, "red"
    encoder = Encoder({"board": board}, (Note,))
    state = encoder.part(board)
    Decoder({"board": other}, (Note,), encoder.values, []).restore(other, state)
    assert (other.notes, other._num, other.colour) == ([Note("a")], 7, "green")


@pytest.mark.parametrize(
    "value", [object(), Board(), len, Board().clear, Pair, math, 1j], ids=lambda value: type(value).__name__
)
def test_unknown_class_cannot_be_encoded(value: Any) -> None:
    with pytest.raises(CodecError, match="a checkpoint cannot contain"):
        there_and_back(value)


def test_undeclared_method_is_neither_encoded_nor_decoded() -> None:
    board = Board()
    with pytest.raises(CodecError, match="cannot contain method"):
        Encoder({"board": board}, ()).encode(board.burn)
    with pytest.raises(CodecError, match="unknown data"):
        Decoder({"board": board}, (), [], []).decode(["call", "board", "burn"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["os.system", "true"]], "must not contain os.system"),
        ([["builtins.eval", "1"]], "must not contain builtins.eval"),
        ([[f"{__name__}.Note", "one field"]], "has the fields"),
    ],
)
def test_only_known_classes_with_all_their_fields_are_built(values: list, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        Decoder({}, (Note,), values, [])


def test_state_with_other_fields_is_rejected() -> None:
    board = Board()
    with pytest.raises(CodecError, match="Board has the state"):
        Decoder({}, (), [], []).restore(board, {"notes": ["list"]})
