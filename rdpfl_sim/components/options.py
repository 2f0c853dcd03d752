"""Types for the options of components. Bounds are part of the type, so the schema and messages show them.

@attack
def noise(view: View, *, sigma: Annotated[Positive, Doc("standard deviation")] = 1.0) -> Tensor:
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, floor
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt, Le, Lt
from pydantic import StringConstraints, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError
from typing_extensions import Doc as Doc  # for components and plug-ins

from rdpfl_sim.errors import OptionError

LARGE, SMALL = 1e30, 1e-30
"""Bounds for the values of options, so that float32 can represent them."""


def describe_bound(sign: str, bound: float) -> str:
    """Return a bound as text.

    >>> describe_bound(">=", SMALL), describe_bound("<", 1000000), describe_bound("<=", 0.5)
    ('> 0', '< 1,000,000', '<= 0.5')
    """
    if (sign, bound) == (">=", SMALL):
        return "> 0"
    return f"{sign} {bound:,}" if isinstance(bound, int) else f"{sign} {bound:g}"


MAX_INPUT_BYTES = 256 << 20
"""Maximum decompressed size of a graph or trace file named in a scenario."""

Positive: TypeAlias = Annotated[float, Ge(SMALL), Le(LARGE)]
NonNegative: TypeAlias = Annotated[float, Ge(0), Le(LARGE)]
Fraction: TypeAlias = Annotated[float, Ge(0), Le(1)]
PositiveFraction: TypeAlias = Annotated[float, Gt(0), Le(1)]
Probability: TypeAlias = Annotated[float, Ge(0), Lt(1)]
Count: TypeAlias = Annotated[int, Ge(1), Lt(2**63)]  # TOML integers have 64 bits
NonNegativeInt: TypeAlias = Annotated[int, Ge(0), Lt(2**63)]


def _one_message(value: object, validate: ValidatorFunctionWrapHandler) -> list[int] | str:
    """Validate a client set; replace the errors for the members of the union with one message."""
    try:
        clients: list[int] | str = validate(value)
    except ValidationError:
        text = "must be a list of client ids, or a string such as '0..4, 7'"
        raise PydanticCustomError("client_set", "{text}", {"text": text}) from None
    return clients


_IDS = r" *[0-9]{1,9}( *\.\. *[0-9]{1,9})? *"

ClientSet: TypeAlias = Annotated[
    list[NonNegativeInt] | Annotated[str, StringConstraints(pattern=f"^{_IDS}(,{_IDS})*$")],
    WrapValidator(_one_message),
]
"""A list of client ids, or a string of ids and inclusive ranges; `client_ids` resolves it."""


def client_ids(option: str, clients: ClientSet, num_clients: int) -> tuple[int, ...]:
    """Expand the value of a `clients` option to sorted client ids.

    >>> client_ids("clients", "7, 0..2", num_clients=8)
    (0, 1, 2, 7)
    """
    parts = clients.split(",") if isinstance(clients, str) else clients
    ranges = [_id_range(option, str(part)) for part in parts]
    unknown = [ids[-1] for ids in ranges if ids[-1] >= num_clients]  # before a huge range is expanded
    if unknown:
        raise OptionError(option, f"there is no client {unknown[0]}; allowed: 0 to {num_clients - 1}")
    listed = sorted(client for ids in ranges for client in ids)
    if not listed:
        raise OptionError(option, "must name at least one client")
    for client, following in pairwise(listed):
        if client == following:
            raise OptionError(option, f"client {client} occurs twice")
    return tuple(listed)


def _id_range(option: str, text: str) -> range:
    first, _, last = text.partition("..")
    ids = range(int(first), int(last or first) + 1)
    if not ids:
        raise OptionError(option, f"a range must be in ascending order; given: {text.strip()!r}")
    return ids


def in_order(low: str, high: str) -> Callable[[Any, int], None]:
    """Return a check, as in `Facts.check`, that one option is at most another one."""

    def check(options: Any, num_clients: int) -> None:
        most = getattr(options, high)
        if getattr(options, low) > most:
            raise OptionError(low, f"must be at most {high} = {most}")

    return check


SLACK = 1e-9
"""Tolerance for rounding errors in comparisons: the mean of 0.7, 0.7 and 0.7 is 0.6999999999999998."""


def round_down(number: float) -> int:
    """Return the largest whole number that is not above `number`, up to rounding errors.

    >>> 0.29 * 100, round_down(0.29 * 100)
    (28.999999999999996, 29)
    """
    return floor(number + SLACK)


def round_up(number: float) -> int:
    """Return the smallest whole number that is not below `number`, up to rounding errors.

    >>> 0.07 * 100, round_up(0.07 * 100)
    (7.000000000000001, 7)
    """
    return ceil(number - SLACK)
