"""Portable arithmetic: the same bits on every x86-64 processor with AVX2 and FMA.

The libraries of torch choose their code by processor: MKL by vendor, ATen and oneDNN by instruction set.
Three environment variables make them choose the same code everywhere. Each library reads its variable once,
when it first computes, so a process has one arithmetic from then on. Importing `rdpfl_sim` sets the
variables. `use` checks that they took effect, or removes them for native arithmetic.

Square roots of tensors and numpy's matrix products still differ: use `square_root` of `vectors.py`, and torch
for products and eigenvalues.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias

from rdpfl_sim.errors import Problem, ScenarioError

Arithmetic: TypeAlias = Literal["portable", "native"]

VARIABLES = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}

COMPATIBLE = 3
"""The mode of MKL in which results do not depend on the processor: MKL_CBWR_COMPATIBLE."""

PROBE = "6d9d78e7b917"
"""Hash of `_probe` in this mode, for builds of torch that do not export the function that returns it."""

EXTENSIONS = (
    *("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
)
"""Instructions that change how native results are rounded, by their names in /proc/cpuinfo."""

AS_NATIVE = "set execution.arithmetic = 'native', with results that depend on the processor"


def prepare() -> None:
    """Set the variables of portable arithmetic if the processor supports it; torch is not imported.

    If the user has set one of them, a portable run sets them later, and a native run uses the user's values.
    """
    if _is_x86() and {"avx2", "fma"} <= _flags() and VARIABLES.keys().isdisjoint(os.environ):
        os.environ.update(VARIABLES)


def use(arithmetic: Arithmetic) -> None:
    """Compute with this arithmetic from now on, or raise a `ScenarioError`.

    Libraries keep the arithmetic of their first computation. Only x86-64 processors have portable
    arithmetic, so on others this does nothing; `why_native` returns the reason.
    """
    if not _is_x86():
        return
    flaw = _use_portable() if arithmetic == "portable" else _use_native()
    if flaw is not None:
        raise ScenarioError([Problem("execution.arithmetic", flaw, arithmetic)])


def in_use() -> Arithmetic:
    """Return the arithmetic that was chosen for this process."""
    return "portable" if VARIABLES.items() <= os.environ.items() else "native"


def why_native(device: str, precision: str = "float32") -> str | None:
    """Return the reason why portable results do not exist for a device and a precision, or None."""
    if device != "cpu":
        return f"the device is {device!r}"
    if precision != "float32":
        return f"training.precision is {precision!r}"
    return None if _is_x86() else f"the processor is {platform.machine()!r}"


def has_bfloat16() -> bool:
    """Return whether this processor computes products in bfloat16; otherwise they are emulated."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def instructions() -> str:
    """Return the instruction set that torch uses, and extensions of the processor that affect rounding."""
    import torch

    found = [name for name in EXTENSIONS if name in _flags()]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *found])


def _use_portable() -> str | None:
    """Return a message if this processor or process cannot compute portably."""
    if not _has_avx2_and_fma():
        return f"this processor lacks AVX2 or FMA; {AS_NATIVE}"
    os.environ.update(VARIABLES)
    if _is_in_use():
        return None
    return (
        "this process has already computed with torch in native arithmetic; start a new process (restart the "
        f"kernel of a notebook) and import rdpfl_sim first, or {AS_NATIVE}"
    )


def _use_native() -> str | None:
    """Return a message if this process has already computed in portable arithmetic."""
    if in_use() == "portable":
        for name in VARIABLES:
            del os.environ[name]
        if _has_avx2_and_fma() and _is_in_use():
            os.environ.update(VARIABLES)
            return (
                "this process has already computed with torch in portable arithmetic; start a new process "
                "(restart the kernel of a notebook) and run this scenario first"
            )
    return None


def _is_in_use() -> bool:
    """Return whether MKL and ATen compute portably; this fixes their choice.

    oneDNN shows its choice nowhere. It cannot have computed before ATen has.
    """
    import torch

    mode = _mkl_mode()
    is_compatible = _probe() == PROBE if mode is None else mode == COMPATIBLE
    return is_compatible and torch.backends.cpu.get_cpu_capability() == "AVX2"


def _mkl_mode() -> int | None:
    """Return the mode of conditional numerical reproducibility of the MKL in torch, or None if unknown."""
    import ctypes

    import torch

    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return int(library.mkl_serv_cbwr_get(-1))  # all branches
    except (OSError, AttributeError):
        return None


def _probe() -> str:
    """Return a hash of products and exponentials, whose last bits depend on the mode of MKL."""
    import torch

    a = (torch.arange(64 * 4810) * 7919 % 1009).reshape(64, 4810).float() / 1009 - 0.5
    content = torch.cat([a @ a[3], torch.dot(a[0], a[1]).reshape(1), a[0].exp()]).numpy().tobytes()
    return blake2b(content, digest_size=6).hexdigest()


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _has_avx2_and_fma() -> bool:
    """Ask torch for AVX2 and FMA: in an emulator, /proc/cpuinfo describes another processor."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):  # an older version of torch
        return {"avx2", "fma"} <= _flags()
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx2") and found.get("fma3"))


@cache
def _flags() -> frozenset[str]:
    """Return the instruction sets of the processor; only Linux lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            found = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(found.partition(":")[2].split())
