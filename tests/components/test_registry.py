from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, TypeAlias

import pytest
from pydantic import ValidationError

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.errors import PluginError
from tests.components.shapes import FILTERS, SHAPES, shape
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


def test_broken_package_is_reported_and_does_not_affect_the_others(packages: Packages) -> None:
    packages.install("halves", HALVED, {"shape": ["halved"]})
    packages.install("gone", "import missing_module", {"shape": ["lost"]})
    packages.install("quits", "raise SystemExit(3)", {"shape": ["quitting"]})
    packages.install("bare", "def bare(x): return x", {"shape": ["bare"]})
    choice = OneOf(SHAPES)
    assert sorted(choice.names()) == ["bare", "halved", "lost", "plain", "quitting", "scaled"]
    assert choice.usable_names() == ["plain", "scaled", "halved"]
    assert sorted(choice.broken()) == [
        "the shape 'bare' from the package bare 1.0 is not registered: "
        "decorate bare:bare with @shape and give it this name",
        "the shape 'lost' from the package gone 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'missing_module' (gone.py, line 1)",
        "the shape 'quitting' from the package quits 1.0 cannot be imported: "
        "SystemExit: 3 (quits.py, line 1)",
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
        ("name: str = 'x'", "has an option 'name' that must have a different name"),
        ("factor: float = object()", "has an option that cannot be used: PydanticJsonSchemaWarning"),
        ("factor: Unknown = 2.0", "has an option that cannot be used: NameError: name 'Unknown' is not"),
        ("_factor: float = 2.0", "has an option that cannot be used: PydanticUserError: Fields must not"),
    ],
)
def test_option_that_toml_cannot_represent_is_reported(packages: Packages, option: str, flaw: str) -> None:
    function = f"@shape\ndef odd(x: float, *, {option}) -> float: return x"
    source = f"from __future__ import annotations\n{HEAD}{function}"
    packages.install("odds", source, {"shape": ["odd"]})
    [sentence] = OneOf(SHAPES).broken()
    assert sentence.startswith(f"the shape 'odd' from the package odds 1.0 {flaw}")


def test_option_without_a_type_is_named_and_does_not_affect_the_others() -> None:
    with temporary_components([SHAPES]):

        @shape
        def careless(x: float, *, strength=2.0) -> float:
            return x * strength

        assert Section.model_validate({"shape": "plain"}).shape.name == "plain"
        sentence = (
            "the shape 'careless' from the module .* has an option 'strength' that needs a type annotation"
        )
        with pytest.raises(ValidationError, match=sentence):
            Section.model_validate({"shape": "careless"})


# Options that list components.

Filter: TypeAlias = Callable[[float], float]
LISTED = Registry("picture", Facts)


@LISTED.register
def picture(*, filters: Sequence[Annotated[Filter, OneOf(FILTERS)]] = ()) -> Filter:
    """A picture that is seen through filters."""

    def look(x: float) -> float:
        for function in filters:
            x = function(x)
        return x

    return look


class Gallery(Strict):
    picture: Annotated[Component, OneOf(LISTED, if_list="must be one picture; list filters in filters")]


def gallery(filters: object) -> Gallery:
    return Gallery.model_validate({"picture": {"name": "picture", "filters": filters}})


def problems(picture: object) -> dict[tuple[object, ...], str]:
    with pytest.raises(ValidationError) as caught:
        Gallery.model_validate({"picture": picture})
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


def test_listed_components_are_bound_in_order() -> None:
    chosen = gallery([{"name": "rounded", "digits": 2}, "rounded"]).picture
    assert chosen.bind()()(0.246) == pytest.approx(0.2)
    assert Gallery.model_validate({"picture": "picture"}).picture.bind()()(0.246) == 0.246


def test_listed_components_are_dumped_as_an_equivalent_list() -> None:
    section = gallery(["rounded"])
    dumped = section.model_dump()
    assert dumped == {"picture": {"name": "picture", "filters": [{"name": "rounded", "digits": 1}]}}
    assert Gallery.model_validate(dumped) == section
    assert gallery([]) == Gallery.model_validate({"picture": "picture"})


def test_mistake_in_a_list_of_components_is_reported_with_its_index() -> None:
    assert problems({"name": "picture", "filters": ["rounded", "plain"]}) == {
        ("picture", "filters", 1): "no filter is called 'plain'; allowed: rounded"
    }
    assert problems({"name": "picture", "filters": "rounded"}) == {
        ("picture", "filters"): "must be a list, such as ['rounded']"
    }


def test_list_in_place_of_one_component_is_rejected_with_the_message_of_the_choice() -> None:
    assert problems(["rounded", "picture"]) == {("picture",): "must be one picture; list filters in filters"}
    with pytest.raises(
        ValidationError, match="must be a name or a table with a name; allowed: plain, scaled"
    ):
        Section.model_validate({"shape": ["plain"]})
