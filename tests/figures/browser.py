"""A real browser for tests: Debian's chromium, driven by the WebDriver protocol without any package."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--window-size=1100,800"),
    "--force-device-scale-factor=1",
]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element, by the standard


def programs() -> tuple[str, str] | None:
    """The browser and its driver, where both are installed."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One window."""

    def __init__(self, session: str) -> None:
        self.session = session

    def call(self, method: str, path: str, **body: Any) -> Any:
        return call(method, f"{self.session}/{path}", body)

    def open(self, path: Path) -> None:
        self.call("POST", "url", url=path.resolve().as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; it is run by the driver, not by the page, so that no policy stops it."""
        return self.call("POST", "execute/sync", script=script, args=list(arguments))

    def find(self, selector: str) -> str:
        found = self.call("POST", "element", using="css selector", value=selector)
        return str(found[ELEMENT])

    def hover(self, selector: str) -> None:
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {ELEMENT: self.find(selector)}}
        source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
        self.call("POST", "actions", actions=[source])

    def click(self, selector: str) -> None:
        self.call("POST", f"element/{self.find(selector)}/click")

    def messages(self) -> list[str]:
        """What the console complained about."""
        return [entry["message"] for entry in self.call("POST", "se/log", type="browser")]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("GET", "screenshot")))


def call(method: str, url: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode() if method == "POST" else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with DIRECT.open(request, timeout=60) as answer:
        return json.loads(answer.read())["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone with it."""
    found = programs()
    assert found is not None
    binary, driver = found
    with subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = next(
                match[1] for line in process.stdout if (match := re.search(r"successfully on port (\d+)", line.strip()))
            )
            base = f"http://127.0.0.1:{port}/session"
            options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = call("POST", base, {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            try:
                yield Browser(f"{base}/{session}")
            finally:
                call("DELETE", f"{base}/{session}", {})
        finally:
            process.terminate()
