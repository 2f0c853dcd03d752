"""Connections to a Ray cluster that is already running or is started on this machine."""

from __future__ import annotations

import logging
import os
import socket
from functools import partial
from importlib.util import find_spec

CONNECT_TIMEOUT_S = 5.0
NOT_INSTALLED = "needs Ray, which is not installed: pip install 'rdpfl-sim[ray]'"


class NoClusterError(Exception):
    """No cluster is available; the message contains the reason."""


def is_installed() -> bool:
    """Return whether Ray can be imported."""
    return find_spec("ray") is not None


class RaySession:
    """A connection to the cluster at `address`, or to a new local one with `num_cpus` processors."""

    def __init__(self, num_cpus: int | None, address: str | None) -> None:
        self.num_cpus = num_cpus
        self.address = address
        self._opened_here = False

    def connect(self) -> None:
        """Connect or start a cluster, unless this process is already connected."""
        import ray

        if ray.is_initialized():
            return
        try:
            self._connect()
        except (OSError, ImportError, RuntimeError, ValueError) as error:
            reason = str(error).partition(". ")[0]
            raise NoClusterError(f"cannot connect to a Ray cluster: {reason}") from error
        self._opened_here = True

    def _connect(self) -> None:
        import ray

        import rdpfl_sim

        start = partial(ray.init, log_to_driver=False, logging_level=logging.ERROR)
        if self.address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            start("local", num_cpus=self.num_cpus, include_dashboard=False)
        else:
            _check_reachable(self.address)
            # Send this version of the package to the cluster: results may depend on the version.
            start(self.address, runtime_env={"py_modules": [rdpfl_sim]})

    def close(self) -> None:
        """Disconnect, and stop the cluster if it was started here."""
        if self._opened_here:
            import ray

            ray.shutdown()
            self._opened_here = False


def _check_reachable(address: str) -> None:
    """Raise an `OSError` immediately if host:port does not respond; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
