"""Run notebooks from top to bottom and keep their outputs: python analysis/execute.py NOTEBOOK..."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def executed(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with new outputs, without metadata on when and with what they were produced."""
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
