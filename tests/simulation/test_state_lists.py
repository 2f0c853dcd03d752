"""Every attribute that changes during a run is in a checkpoint, or is declared here as temporary."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "rdpfl_sim"
MUTATORS = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "pop",
    "remove",
    "setdefault",
    "subtract",
    "update",
}
TEMPORARY = {
    "Client": {"pending_event", "mailbox"},  # the event is created again; the mailbox is a component
    "Kernel": {"is_paused"},
    "Simulation": {"checkpoint_writer", "is_checkpoint_due", "progress", "started_s", "status", "warnings"},
    "World": {"changes", "processes"},  # changes are drawn again, processes are started again
}
"""Attributes that a restored run sets again, or that are components with their own state."""


def classes_with_state() -> Iterator[tuple[str, ast.ClassDef, set[str]]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if isinstance(statement, ast.Assign | ast.AnnAssign) and "STATE" in ast.unparse(
                        statement
                    ):
                        targets = (
                            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                        )
                        if [ast.unparse(target) for target in targets] == ["STATE"] and statement.value:
                            names = {
                                part.value
                                for part in ast.walk(statement.value)
                                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                            }
                            yield node.name, node, names


def own_attribute(node: ast.AST) -> str | None:
    """Return the attribute if a node is `self.attribute`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def changed_attributes(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        found = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found = own_attribute(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found = own_attribute(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = own_attribute(node.func.value) if node.func.attr in MUTATORS else None
        if found is not None:
            yield found


CLASSES = {name: (node, names) for name, node, names in classes_with_state()}


@pytest.mark.parametrize("name", CLASSES)
def test_attribute_that_a_method_changes_is_part_of_the_state(name: str) -> None:
    node, listed = CLASSES[name]
    changed = {
        attribute
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
        for attribute in changed_attributes(method)
    }
    assert changed - listed - TEMPORARY.get(name, set()) == set()


def test_classes_with_state_are_found() -> None:
    assert {"Client", "Mailbox", "World", "Network", "Link", "Adversary", "Telemetry"} <= CLASSES.keys()
