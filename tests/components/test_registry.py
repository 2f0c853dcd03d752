from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated

import pytest
from pydantic import ValidationError

from rdpfl_sim.components.choice import OneAfterOthers, OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.components.table import Strict
from rdpfl_sim.errors import PluginError
from tests.components.shapes import FILTERS, SHAPES, plain, shape
from tests.packages import Packages
from tests.registries import temporary_components


class Section(Strict):
    shape: Annotated[Component, OneOf(SHAPES)]


def test_component_is_bound_to_its_options() -> None:
    section = Section.model_validate({"shape": {"name": "scaled", "times": 4}})
    assert section.shape.bind()(10.0) == 20.0


def test_name_alone_is_enough_where_every_option_has_a_default() -> None:
    assert Section.model_validate({"shape": "plain"}).shape.bind()(3.0) == 3.0
    with pytest.raises(ValidationError, match="is required"):
        Section.model_validate({"shape": "scaled"})


@dataclass(frozen=True, kw_only=True)
class SizedFacts(Facts):
    size: int = 1


class TestRegistry:
    def test_name_is_that_of_the_function_or_of_the_class_in_snake_case(self) -> None:
        registry = Registry("shape", Facts)

        @registry.register
        def round_one() -> None: ...

        @registry.register
        class TwoSided: ...

        @registry.register(name="none")
        def nothing() -> None: ...

        assert dict(registry) == {"round_one": round_one, "two_sided": TwoSided, "none": nothing}

    def test_facts_are_arguments_of_the_decorator(self) -> None:
        registry = Registry("shape", SizedFacts)

        @registry.register(size=3)
        def large() -> None: ...

        @registry.register
        def small() -> None: ...

        assert registry.facts("large") == SizedFacts(name="large", size=3)
        assert registry.facts_of(partial(small)).size == 1
        assert not hasattr(large, "size")
        with pytest.raises(TypeError, match="colour"):
            registry.register(colour="red")  # type: ignore[call-overload]

    def test_facts_are_found_behind_bound_options_and_wrappers(self) -> None:
        registry = Registry("shape", SizedFacts)

        @registry.register(size=3)
        def large(*, x: int = 0) -> None: ...

        @wraps(large)
        def guarded(*, x: int = 0) -> None: ...

        assert registry.facts_of(partial(guarded, x=1)).size == 3
        assert registry.facts_of(lambda: None) == SizedFacts()

    def test_name_of_another_module_cannot_be_taken(self) -> None:
        def plain(x: float) -> float:
            return 0.0

        with pytest.raises(PluginError) as caught:
            shape(plain)
        assert str(caught.value) == (
            "the shape 'plain' is defined by the module tests.components.shapes and by the module "
            f"{__name__}: rename or uninstall one"
        )

    def test_definition_at_the_same_place_replaces_the_earlier_one(self) -> None:
        registry = Registry("shape", Facts)
        for value in (1, 2):  # as when a cell of a notebook is run again

            @registry.register
            def number(*, value: int = value) -> int:
                return value

        assert registry["number"]() == 2


def test_component_added_at_run_time_is_found() -> None:
    with temporary_components([SHAPES]):

        @shape
        def doubled(x: float) -> float:
            return 2 * x

        assert Section.model_validate({"shape": "doubled"}).shape.bind()(3.0) == 6.0


HEAD = "from tests.components.shapes import shape\n"
HALVED = f"""{HEAD}
@shape
def halved(x: float) -> float:
    return x / 2
"""


@pytest.fixture(autouse=True)
def forget_shapes(packages: Packages) -> None:
    packages.registries.append(SHAPES)


def test_installed_packages_add_components_through_entry_points(packages: Packages) -> None:
    packages.install("halves", HALVED, {"shape": ["halved"]})
    assert Section.model_validate({"shape": "halved"}).shape.bind()(3.0) == 1.5


def test_broken_package_is_reported_and_does_not_disturb_the_others(packages: Packages) -> None:
    packages.install("halves", HALVED, {"shape": ["halved"]})
    packages.install("gone", "import missing_module", {"shape": ["lost"]})
    packages.install("quits", "raise SystemExit(3)", {"shape": ["quitting"]})
    packages.install("bare", "def bare(x): return x", {"shape": ["bare"]})
    choice = OneOf(SHAPES)
    assert sorted(choice.names()) == ["bare", "halved", "lost", "plain", "quitting", "scaled"]
    assert choice.usable_names() == ["plain", "scaled", "halved"]
    assert sorted(choice.broken()) == [
        "the shape 'bare' of the package bare 1.0 is not registered: "
        "bare:bare needs the decorator @shape and this name",
        "the shape 'lost' of the package gone 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'missing_module' (gone.py, line 1)",
        "the shape 'quitting' of the package quits 1.0 cannot be imported: SystemExit: 3 (quits.py, line 1)",
    ]
    assert Section.model_validate({"shape": "plain"}).shape.bind()(3.0) == 3.0
    with pytest.raises(ValidationError, match=r"package gone 1\.0 cannot be imported: ModuleNotFoundError"):
        Section.model_validate({"shape": "lost"})
    assert "lost" not in str(Section.model_json_schema())
    assert "halved" in str(Section.model_json_schema())


def test_name_that_two_packages_offer_is_rejected_and_both_are_named(packages: Packages) -> None:
    packages.install("one", HALVED, {"shape": ["halved"]})
    packages.install("two", HALVED, {"shape": ["halved"]})
    with pytest.raises(ValidationError) as caught:
        Section.model_validate({"shape": "halved"})
    [error] = caught.value.errors()
    assert error["msg"] in (
        f"the shape 'halved' is defined by the package {first} 1.0 and by the package {second} 1.0: "
        "rename or uninstall one"
        for first, second in (("one", "two"), ("two", "one"))
    )


def test_package_cannot_take_the_name_of_another_component(packages: Packages) -> None:
    packages.install("shadow", f"{HEAD}\n@shape\ndef plain(x): return 0", {"shape": ["plain"]})
    with pytest.raises(ValidationError, match=r"is defined by the module .*shapes and by the package shadow"):
        Section.model_validate({"shape": "plain"})
    assert Section.model_validate({"shape": {"name": "scaled", "times": 2}}).shape.bind()(3.0) == 3.0


@pytest.mark.parametrize(
    ("option", "flaw"),
    [
        ("factor=2.0", "has an option 'factor' that needs a type annotation"),
        ("name: str = 'x'", "has an option 'name' that must have another name"),
        ("factor: float = object()", "has an option that cannot be used: PydanticJsonSchemaWarning"),
        ("factor: Unknown = 2.0", "has an option that cannot be used: NameError: name 'Unknown' is not"),
        ("_factor: float = 2.0", "has an option that cannot be used: PydanticUserError: Fields must not"),
    ],
)
def test_option_that_toml_cannot_hold_is_reported(packages: Packages, option: str, flaw: str) -> None:
    function = f"@shape\ndef odd(x: float, *, {option}) -> float: return x"
    source = f"from __future__ import annotations\n{HEAD}{function}"
    packages.install("odds", source, {"shape": ["odd"]})
    [sentence] = OneOf(SHAPES).broken()
    assert sentence.startswith(f"the shape 'odd' of the package odds 1.0 {flaw}")


def test_option_without_a_type_is_named_and_does_not_disturb_the_others() -> None:
    with temporary_components([SHAPES]):

        @shape
        def careless(x: float, *, strength=2.0) -> float:
            return x * strength

        assert Section.model_validate({"shape": "plain"}).shape.name == "plain"
        sentence = (
            "the shape 'careless' of the module .* has an option 'strength' that needs a type annotation"
        )
        with pytest.raises(ValidationError, match=sentence):
            Section.model_validate({"shape": "careless"})


# Chains.


def combined(
    before: tuple[Callable[[float], float], ...], last: Callable[[float], float]
) -> Callable[..., float]:
    def run(x: float) -> float:
        for function in before:
            x = function(x)
        return last(x)

    return run


class Chained(Strict):
    shape: Annotated[
        Component,
        OneAfterOthers(SHAPES, others=OneOf(FILTERS), combine=combined),
    ]


def problems(value: object) -> dict[tuple[object, ...], str]:
    with pytest.raises(ValidationError) as caught:
        Chained.model_validate({"shape": value})
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


def test_list_is_bound_to_one_function_that_runs_them_in_order() -> None:
    table = {"name": "scaled", "factor": 1.0, "times": 3}
    section = Chained.model_validate({"shape": ["rounded", {"name": "rounded", "digits": 2}, table]})
    assert section.shape.bind()(0.26) == pytest.approx(0.9)
    assert section.shape.name == "rounded + rounded + scaled"


def test_name_or_table_or_list_of_one_is_that_component() -> None:
    for value in ("plain", {"name": "plain"}, ["plain"], [{"name": "plain"}]):
        assert Chained.model_validate({"shape": value}).shape.bind() is plain


def test_list_is_dumped_as_a_list_that_means_the_same() -> None:
    section = Chained.model_validate({"shape": ["rounded", {"name": "scaled", "times": 3}]})
    dumped = section.model_dump()
    assert dumped == {
        "shape": [{"name": "rounded", "digits": 1}, {"name": "scaled", "factor": 0.5, "times": 3}]
    }
    assert Chained.model_validate(dumped) == section


def test_what_stands_in_the_wrong_place_is_named() -> None:
    assert problems(["plain", "rounded"]) == {
        ("shape", 0): "no filter is called 'plain'; allowed: rounded",
        ("shape", 1): "no shape is called 'rounded'; allowed: plain, scaled",
    }
    assert problems(["rounded", {"name": "scaled", "times": 0}]) == {
        ("shape", 1, "times"): "input should be greater than or equal to 1"
    }
    assert problems([["rounded"], "plain"]) == {
        ("shape", 0): "must be a name or a table with a name; allowed: rounded"
    }
    for value in ([], 3):
        (text,) = problems(value).values()
        assert text == (
            "must be a name or a table with a name, or a list that ends in one, after any of rounded; "
            "allowed: plain, scaled"
        )


def test_schema_allows_a_list() -> None:
    choices = Chained.model_json_schema()["properties"]["shape"]["anyOf"]
    (array,) = (choice for choice in choices if choice.get("type") == "array")
    items = array["items"]["anyOf"]
    names = [name for item in items for name in item.get("enum", [item["const"]] if "const" in item else [])]
    assert sorted(names) == ["plain", "rounded", "scaled"]
    assert array["minItems"] == 1
