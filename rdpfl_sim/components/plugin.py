"""Components that do not come with rdpfl-sim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb


@dataclass(frozen=True)
class Plugin:
    """A component that does not come with rdpfl-sim, and its origin."""

    kind: str
    name: str
    origin: str
    """Such as "package drag-attack 0.1", or "module drag"."""
    module: str

    def __str__(self) -> str:
        return f"the {self.kind.replace('_', ' ')} {self.name!r} of the {self.origin}"

    def explain(self, error: BaseException) -> str:
        """Return an error on one line: type, message, and the last line of the plug-in's code that ran."""
        text = " ".join(str(error).split())
        lines = self.lines(error)
        return f"{type(error).__name__}{': ' if text else ''}{text}" + (f" ({lines[-1]})" if lines else "")

    def lines(self, error: BaseException) -> list[str]:
        """Return the lines of the plug-in's code that an error passed through, the innermost last."""
        package, found = self.module.partition(".")[0], []
        for frame, line in walk_tb(error.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                found.append(f"{Path(frame.f_code.co_filename).name}, line {line}")
        return found
