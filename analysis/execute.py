"""Run notebooks from top to bottom and keep their outputs: python analysis/execute.py NOTEBOOK..."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs, and nothing in it about when and with what they were made."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, record_timing=False, resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, flush=True)
        nbformat.write(executed(Path(name)), name)
