"""A connection to a Ray cluster, or to one that is started on this machine."""

from __future__ import annotations

import logging
import os
import socket
from importlib.util import find_spec
from typing import Any

PATIENCE_S = 5.0

NOT_INSTALLED = "needs Ray, which is not installed: pip install 'rdpfl-sim[ray]'"


class NoClusterError(Exception):
    """No cluster can be used; the message says why."""


def is_installed() -> bool:
    """Whether Ray can be imported."""
    return find_spec("ray") is not None


class RaySession:
    """A connection to the cluster at an address, or to a new one with so many processors."""

    def __init__(self, num_cpus: int | None, address: str | None) -> None:
        self.num_cpus = num_cpus
        self.address = address
        self.is_ours = False

    def connect(self) -> None:
        """Connect, or start a cluster, unless this process is connected already."""
        import ray

        if ray.is_initialized():
            return
        try:
            self._connect()
        except (OSError, ImportError, RuntimeError, ValueError) as error:
            raise NoClusterError(f"no Ray cluster can be used: {str(error).partition('. ')[0]}") from error
        self.is_ours = True

    def _connect(self) -> None:
        import ray

        import rdpfl_sim

        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told about the user's runs
            ray.init("local", num_cpus=self.num_cpus, include_dashboard=False, **quiet)
        else:
            _knock(self.address)
            # The cluster gets this very version of the package: another one might give other numbers.
            ray.init(self.address, runtime_env={"py_modules": [rdpfl_sim]}, **quiet)

    def close(self) -> None:
        """Disconnect, and stop a cluster that was started here."""
        if self.is_ours:
            import ray

            ray.shutdown()
            self.is_ours = False


def _knock(address: str) -> None:
    """An error if nobody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
