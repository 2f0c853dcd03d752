"""Compare building blocks and pinned runs on this processor and on two emulated ones: `make portable`.

The emulator is `qemu-x86_64` (in Debian's package qemu-user). It emulates AVX2, but not AVX-512. With names
of its processors as arguments (see `qemu-x86_64 -cpu help`), these are emulated instead.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rdpfl_sim.simulation.provenance import environment

ROOT = Path(__file__).parents[2]
EMULATOR = "qemu-x86_64"
PROCESSORS = ("Haswell-noTSX", "EPYC-Rome")
MODULES = {"building blocks": "tests.pinned.building_blocks", "pinned runs": "tests.pinned.cases"}
NUM_PROCESSES = 2


def compute(module: str, processor: str | None) -> dict[str, str]:
    """Return the hashes that a module prints on this processor (None) or on an emulated one."""
    emulator = [] if processor is None else [EMULATOR, "-cpu", processor]
    command = [*emulator, sys.executable, "-m", module, "--print"]
    began, found = time.monotonic(), dict[str, str]()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, _, value = line.rstrip("\n").partition("\t")
            found[name] = value
            if sys.stderr.isatty():
                where = processor or "this processor"
                sys.stderr.write(f"\r\x1b[K{time.monotonic() - began:5.0f} s  {where}: {name}")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return found


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return the names whose hashes differ, or that one side lacks."""
    return [name for name in {**here, **there} if here.get(name) != there.get(name)]


def main(processors: Sequence[str]) -> int:
    """Print a table of the differences; return 1 if there are any."""
    if shutil.which(EMULATOR) is None:
        print(f"{EMULATOR} was not found; on Debian, it is in the package qemu-user")
        return 2
    tasks = [(module, processor) for module in MODULES.values() for processor in (None, *processors)]
    with ThreadPoolExecutor(NUM_PROCESSES) as pool:
        found = dict(zip(tasks, pool.map(lambda task: compute(*task), tasks), strict=True))
    machine = environment("cpu", "portable")["machine"]
    table = Table("", "compared", *processors, title=f"Compared with {machine['processor']}")
    details = []
    for title, module in MODULES.items():
        here = found[module, None]
        differ = {processor: differences(here, found[module, processor]) for processor in processors}
        outcomes = [f"{len(names)} differ" if names else "equal" for names in differ.values()]
        table.add_row(title, str(len(here)), *outcomes)
        details += [f"{processor}: {name}" for processor, names in differ.items() for name in names]
    Console().print(table)
    print("\n".join(details))
    return 1 if details else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or PROCESSORS))
