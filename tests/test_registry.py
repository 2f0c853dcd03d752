from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Annotated

import pytest
from pydantic import ValidationError

from rdpfl_sim import registry
from rdpfl_sim.options import Count, Doc, Fraction
from rdpfl_sim.registry import Component, OneOf, Strict


def plain(x: float) -> float:
    """x itself."""
    return x


def scaled(x: float, *, factor: Annotated[Fraction, Doc("how much")] = 0.5, times: Count) -> float:
    """x scaled."""
    return x * factor * times


SHAPES: dict[str, Callable[..., float]] = {"plain": plain, "scaled": scaled}


class Section(Strict):
    shape: Annotated[Component, OneOf("shape", SHAPES)]


def test_component_is_bound_to_its_options() -> None:
    section = Section.model_validate({"shape": {"name": "scaled", "times": 4}})
    assert section.shape.bind()(10.0) == 20.0


def test_name_alone_is_enough_where_every_option_has_a_default() -> None:
    assert Section.model_validate({"shape": "plain"}).shape.bind()(3.0) == 3.0
    with pytest.raises(ValidationError, match="is required"):
        Section.model_validate({"shape": "scaled"})


def test_component_added_at_run_time_is_found() -> None:
    SHAPES["doubled"] = lambda x: 2 * x
    try:
        assert Section.model_validate({"shape": "doubled"}).shape.bind()(3.0) == 6.0
    finally:
        del SHAPES["doubled"]


def test_installed_packages_add_components_through_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("halved", "tests.test_registry:halved", "rdpfl_sim.shape")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "rdpfl_sim.shape" else [])
    registry._installed.cache_clear()
    try:
        assert Section.model_validate({"shape": "halved"}).shape.bind()(3.0) == 1.5
    finally:
        registry._installed.cache_clear()


def halved(x: float) -> float:
    """Half of x."""
    return x / 2


def test_option_without_a_type_is_named_and_does_not_disturb_the_others() -> None:
    def careless(x: float, *, strength=2.0) -> float:
        return x * strength

    SHAPES["careless"] = careless
    try:
        assert Section.model_validate({"shape": "plain"}).shape.name == "plain"
        with pytest.raises(TypeError, match="'careless': option 'strength' needs a type annotation"):
            Section.model_validate({"shape": "careless"})
    finally:
        del SHAPES["careless"]
