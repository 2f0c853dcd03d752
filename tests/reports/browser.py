"""Headless Chromium, controlled through the DevTools protocol over a pipe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = 60


class Browser:
    """A page in a browser, with its errors and network requests."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'  # the protocol uses descriptors 3 and 4
        self.process = subprocess.Popen(
            [
                *("bash", "-c", command, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"),
                *(f"--user-data-dir={self.profile}", "--remote-debugging-pipe"),
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.commands, self.answers = commands, answers
        self.buffer = b""
        self.number = 0
        self.session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Kill the browser and delete its profile."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **self.session}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            chunk = os.read(self.answers, 1 << 20)
            assert chunk, "the browser has exited"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def show(self, path: Path, width: int = 1300, dark: bool = False) -> None:
        """Open a report and wait until its script has run."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.documentElement?.dataset.ready === 'yes'")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"still false after {TIMEOUT_S} s: {condition}"
            time.sleep(0.02)

    def select_tab(self, tab: str) -> None:
        """Click a tab and wait until all its figures are drawn."""
        self.evaluate(f"document.getElementById('tab-{tab}').click()")
        plots = "[...document.querySelectorAll('section:not([hidden]) .plot')]"
        self.wait_for(f"{plots}.every(plot => plot.querySelector('.main-svg'))")

    def press(self, key: str) -> None:
        """Press and release the key of a character."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def move_mouse(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    @property
    def errors(self) -> list[Any]:
        """Exceptions, console messages other than plain logs, and entries of the browser's log."""
        errors = [
            event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"
        ]
        for event in self.events:
            if event.get("method") == "Log.entryAdded":
                errors.append(event["params"]["entry"])
            if event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] != "log":
                errors.append(event["params"]["args"])
        return errors

    @property
    def requests(self) -> list[str]:
        """Addresses that the page requested, except files and embedded data."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]
