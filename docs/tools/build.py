"""Write the reference pages and build the documentation site: `python -m docs.tools.build [FOLDER]`.

Without a folder, only the reference pages are written. The site is built from a copy of the pages, with
warnings as errors. In it, a link to a file outside docs/ becomes a link to a copy of that file, and a link
to a folder becomes plain text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.tools.reference import PAGES, api, columns, commands, components, records, scenario

ROOT = Path(__file__).parents[2]
MARK = "<!-- make docs writes the rest of this page -->\n"
GENERATED: Mapping[str, Callable[[], str]] = {
    "reference/scenario.md": scenario,
    "reference/commands.md": commands,
    "reference/api.md": api,
    "reference/records.md": records,
    "reference/columns.md": columns,
    **{f"reference/{page}.md": partial(components, page) for page in PAGES},
}
"""The pages whose text after the mark is generated from the code."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)\)")
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')  # ours: offline.js


def reference_page(name: str) -> str:
    """Return a reference page with its generated part."""
    head = (ROOT / "docs" / name).read_text().partition(MARK)[0]
    return f"{head}{MARK}\n{GENERATED[name]().rstrip()}\n"


def write_reference() -> None:
    """Write the generated part of every reference page."""
    for name in GENERATED:
        (ROOT / "docs" / name).write_text(reference_page(name))


def build(site: Path) -> None:
    """Build the site into a folder, which is replaced; a warning is a `CalledProcessError`."""
    with TemporaryDirectory() as name:
        stage = Path(name)
        shutil.copy(ROOT / "mkdocs.yml", stage)
        gather(stage / "docs")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(command, cwd=stage, check=True, env={**os.environ, "NO_COLOR": "1"})
        for page in (stage / "site").rglob("*.html"):
            page.write_text(_SHIM.sub("", page.read_text()))  # a page must not fetch anything
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(stage / "site", site)


def gather(target: Path) -> None:
    """Copy all pages and pictures; change links to files outside docs/."""
    docs = ROOT / "docs"
    shutil.copytree(docs, target, ignore=shutil.ignore_patterns("tools", "__pycache__"))
    for page in target.rglob("*.md"):
        place = page.relative_to(target)
        replace = partial(_link_inside, source=docs / place, target=target, page=page)
        page.write_text(_LINK.sub(replace, page.read_text()))


def _link_inside(link: re.Match[str], source: Path, target: Path, page: Path) -> str:
    path = (source.parent / link[2]).resolve()
    if path.is_relative_to(ROOT / "docs") or not path.exists():  # the build reports a missing file
        return link[0]
    if path.is_dir():
        return link[1]
    copy = target / "files" / path.relative_to(ROOT)
    copy = copy.with_name(f"{copy.name}.txt")  # so that browsers show it and the builder ignores it
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    return f"[{link[1]}]({os.path.relpath(copy, page.parent)})"


if __name__ == "__main__":
    write_reference()
    for folder in sys.argv[1:]:
        build(Path(folder))
