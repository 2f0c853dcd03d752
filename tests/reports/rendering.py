"""Render terminal output as text."""

from io import StringIO

from rich.console import Console, RenderableType


def rendered(renderable: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
