"""Builds the documentation site: `python -m docs.tools.build FOLDER`.

The pages are copied to a temporary folder, completed with what is read off the code, and built there with
warnings as errors. A link to a file outside docs/ becomes a link to a copy of it, one to a folder its name.
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

from docs.tools.reference import PAGES, components, records, scenario

ROOT = Path(__file__).parents[2]
MARK = "<!-- generated -->"
GENERATED: Mapping[str, Callable[[], str]] = {
    "reference/scenario.md": scenario,
    "reference/records.md": records,
    **{f"reference/{page}.md": partial(components, page) for page in PAGES},
}
"""The pages that end in what the code says, after the mark."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)\)")
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')  # ours: offline.js


def build(site: Path) -> None:
    """Build the site into a folder, which is replaced; a warning is a `CalledProcessError`."""
    with TemporaryDirectory() as name:
        stage = Path(name)
        shutil.copy(ROOT / "mkdocs.yml", stage)
        gather(stage / "docs")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(command, cwd=stage, check=True, env={**os.environ, "NO_COLOR": "1"})
        for page in (stage / "site").rglob("*.html"):
            page.write_text(_SHIM.sub("", page.read_text()))  # nothing is fetched when it is read
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(stage / "site", site)


def gather(target: Path) -> None:
    """Copy all pages and pictures, completed and with their links turned inwards."""
    docs = ROOT / "docs"
    shutil.copytree(docs, target, ignore=shutil.ignore_patterns("tools", "__pycache__"))
    for page in target.rglob("*.md"):
        place = page.relative_to(target)
        text = page.read_text()
        if str(place) in GENERATED:
            text = text.partition(MARK)[0] + GENERATED[str(place)]()
        inwards = partial(_turned_inwards, source=docs / place, target=target, page=page)
        page.write_text(_LINK.sub(inwards, text))


def _turned_inwards(link: re.Match[str], source: Path, target: Path, page: Path) -> str:
    path = (source.parent / link[2]).resolve()
    if path.is_relative_to(ROOT / "docs") or not path.exists():  # strict mode tells what does not exist
        return link[0]
    if path.is_dir():
        return link[1]
    copy = target / "files" / path.relative_to(ROOT)
    copy = copy.with_name(f"{copy.name}.txt")  # shown by browsers, and not taken for a page
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    return f"[{link[1]}]({os.path.relpath(copy, page.parent)})"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
