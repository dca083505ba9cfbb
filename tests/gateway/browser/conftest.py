"""Pages in a real headless Chromium: Debian's package, unpacked into the cache where it is not installed."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # Its import takes as long as many tests, and all but these do without it.
    from playwright.sync_api import Browser, Locator, Page, Request

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stoker" / "chromium"
WAIT_MS = 30_000
FLAGS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
"""No sandbox: whoever runs the tests may be root. No names: nothing that Chromium itself wants leaves this machine."""
REFUSED = "Failed to load resource: the server responded with a status of "
"""What Chromium, not the page, writes to the console for every answer that is an error."""


def unpacked() -> Path:
    """Chromium's program, and beside it the libraries that this machine lacks."""
    program = CACHE / "usr" / "lib" / "chromium" / "chromium"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            plan = ["apt-get", "install", "--simulate", "--no-install-recommends", "chromium"]
            lines = subprocess.run(plan, check=True, capture_output=True, text=True).stdout.splitlines()
            names = [line.split()[1] for line in lines if line.startswith("Inst ")]
            subprocess.run(["apt-get", "download", *names], cwd=CACHE, check=True, capture_output=True)
            for package in sorted(CACHE.glob("*.deb"), key=lambda path: path.name.startswith("chromium_")):
                subprocess.run(["dpkg", "-x", package, CACHE], check=True)
                package.unlink()
    return program


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
    installed = shutil.which("chromium")
    program = unpacked() if installed is None else Path(installed)
    libraries = sorted({str(path.parent) for path in CACHE.rglob("*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if installed is None else dict(os.environ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, env=environment)
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page, and what it asked for and wrote to the console."""

    page: "Page"
    requests: list["Request"] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def say(self, text: str) -> None:
        self.page.get_by_label("Message").fill(text)
        self.page.keyboard.press("Enter")

    @property
    def answer(self) -> "Locator":
        return self.page.locator("article.assistant").last

    @property
    def state(self) -> "Locator":
        return self.page.locator("#state-text")

    @property
    def chats(self) -> list[Any]:
        return [request.post_data_json for request in self.requests if request.url.endswith("/v1/chat/completions")]


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: "Browser") -> Open:
    """`with open_page(api) as visit`: at its end no other address was asked, and the page itself has complained of nothing."""

    @contextmanager
    def visit_of(api: Any, **settings: Any) -> Iterator[Visit]:
        context = browser.new_context(**settings)
        context.set_default_timeout(WAIT_MS)
        visit = Visit(context.new_page())
        visit.page.goto(f"{api.url}/")
        yield visit
        assert {request.url for request in visit.requests if not request.url.startswith((f"{api.url}/", "data:"))} == set()
        assert [text for text in visit.errors if not text.startswith(REFUSED)] == []
        context.close()

    return visit_of
