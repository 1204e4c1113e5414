"""Makes the pictures of README.md and a page from the program itself: `scripts/record.py [--check]`, `make record`.

The terminal is `harken demo --fast`, run in a terminal of its own and drawn as an SVG whose lines appear one after the
other. The page is that of a daemon with a few messages, and with an agent that asks, looked at with Chromium. All are
made for a light and a dark background, into `docs/images/`.

What a picture says is compared without what differs from run to run: ids, process numbers, times. A picture that still
says the same is left as it is. `--check` writes nothing and ends with 1 when a picture is older than what it shows;
tests/docs/test_recording.py and tests/browser/test_recording.py ask the same.
"""

from __future__ import annotations

import html
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

from playwright.sync_api import Browser, sync_playwright

from harken.testing import DaemonProcess, EdgeClient

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
Theme: TypeAlias = Literal["light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
COLUMNS: Final = 116
CHARACTER: Final = 7.83  # the width of a letter at 13 px, in pixels
LINE: Final = 20
MARGIN: Final = 20
BAR: Final = 36
SECONDS_A_LINE: Final = 0.35
WIDTH: Final = 1280
HEIGHT: Final = 800
# By the beginning of the files' names: where it is, and what is there once it can be looked at.
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "page": ("/m/inbox", "#items > .item:nth-child(4)"),
    "approve": ("/needs", ".asked pre"),
}

STYLES: Final[Mapping[str, str]] = {"1": "bold", "2": "dim", "31": "red", "32": "green", "36": "cyan"}

_ESCAPE: Final = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r")
_DIFFERS: Final = (
    (re.compile(r"\b([mbsd])-[0-9a-z]{10}\b"), r"\1-…"),
    (re.compile(r"process \d+"), "process …"),
    (re.compile(r"\d+(?:\.\d+)? ms"), "… ms"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "…"),
    (re.compile(r"\b(?:now|just now|\d+ ?(?:s|sec|seconds?) ago)\b"), "…"),
    (re.compile(r"\n, \d+ you have not seen"), ""),  # it changes while the page is looked at
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:…"),
)


@dataclass(frozen=True)
class TerminalColours:
    """The colours of a terminal."""

    back: str
    edge: str
    text: str
    dim: str
    cyan: str
    green: str
    red: str

    @classmethod
    def of(cls, theme: Theme) -> Self:
        """Return those of a theme."""
        if theme == "light":
            return cls("#f6f8fa", "#d1d9e0", "#1f2328", "#59636e", "#0a6a72", "#17692e", "#b3161f")
        return cls("#0d1117", "#30363d", "#e6edf3", "#9198a1", "#56d4dd", "#56d364", "#ff8e85")


def masked(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return text


def demonstration() -> list[str]:
    """Run the demonstration in a terminal; return its lines with the escapes of their colours."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "harken", "demo", "--fast"],
        stdin=follower,
        stdout=follower,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "HARKEN_TOASTS_ENABLED": "false"},
    ) as program:
        os.close(follower)
        said = b"".join(_read(leader))
    os.close(leader)
    if program.returncode:
        raise SystemExit(f"harken demo failed:\n{said.decode(errors='replace')}")
    return _OTHER_ESCAPE.sub("", said.decode()).strip("\n").split("\n")


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return
        if not part:
            return
        yield part


def plain(lines: Sequence[str]) -> str:
    """Return what lines of a terminal say, without their colours."""
    return "\n".join(_ESCAPE.sub("", line).rstrip() for line in lines)


def drawing(lines: Sequence[str], theme: Theme) -> str:
    """Return lines of a terminal as a picture in which they appear one after the other."""
    colours = TerminalColours.of(theme)
    width = round(COLUMNS * CHARACTER) + 2 * MARGIN
    height = BAR + LINE * (len(lines) + 1) + MARGIN
    rules = "".join(f".{name}{{fill:{getattr(colours, name)}}}" for name in ("dim", "cyan", "green", "red"))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    face = "font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="A terminal that runs harken demo">',
        f"<style>text{{{face};fill:{colours.text};animation:show .01s linear both}}.bold{{font-weight:700}}{rules}",
        "@keyframes show{from{opacity:0}}@media(prefers-reduced-motion:reduce){text{animation:none}}</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colours.back}"',
        f' stroke="{colours.edge}"/>',
        *(f'<circle cx="{22 + 18 * i}" cy="20" r="5.5" fill="{colours.edge}"/>' for i in range(3)),
    ]
    for number, line in enumerate(["$ harken demo", *lines]):
        if line.strip():
            place = BAR + LINE * number + LINE // 2 + 4
            delay = round(number * SECONDS_A_LINE, 2)
            drawn.append(f'<text x="{MARGIN}" y="{place}" style="animation-delay:{delay}s">{_spans(line)}</text>')
    return "\n".join([*drawn, "</svg>\n"])


def _spans(line: str) -> str:
    """Return a line with a span for each of its colours."""
    drawn, style, begin = "", "", 0
    for found in [*_ESCAPE.finditer(line), None]:
        text = html.escape(line[begin : found.start() if found else len(line)], quote=False)
        drawn += f'<tspan class="{style}">{text}</tspan>' if style and text else text
        if found:
            names = [STYLES[each] for each in found[1].split(";") if each in STYLES]
            style = " ".join(names)
            begin = found.end()
    return drawn


def said_by_drawing(picture: str) -> str:
    """Return what a picture of a terminal says, without the command and the empty lines."""
    found = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return "\n".join(html.unescape(re.sub(r"<[^>]+>", "", each)).rstrip() for each in found[1:])


def without_empty_lines(text: str) -> str:
    """Return a text whose every line says something."""
    return "\n".join(line for line in text.splitlines() if line.strip())


@contextmanager
def shown_daemon(home: Path) -> Iterator[DaemonProcess]:
    """Run a daemon whose inbox a reader understands at a glance: what was sent, seen, answered, and what waits."""
    daemon = DaemonProcess(home).start()
    try:
        with EdgeClient(daemon.edge_command(), name="demo-agent") as agent:
            agent.tool("inbound_queue_stats")
            daemon.call("send", text="the build is red: `test_login` fails", sender="ci-bot", channel="ci")
            (first,) = agent.tool("inbox_pull")["messages"]
            agent.tool("reply", message_id=first["id"], body="on it, the fix follows")
            daemon.call("send", text="please also update the changelog")
            agent.tool("inbox_pull")
            agent.tool("inbound_queue_stats")
            daemon.call("send", text="disk of build-3 is 91 % full", sender="monitoring", channel="alerts")
            daemon.call("send", text="Is the release still planned for Friday?", priority="high")
            yield daemon
    finally:
        daemon.stop()


@contextmanager
def asking(daemon: DaemonProcess) -> Iterator[None]:
    """Run what the plugin of opencode does while opencode asks whether it may run a command."""
    command = "npm run deploy -- --to production"
    asked = {"id": "per_1", "permission": "bash", "patterns": [command], "always": ["npm run *"]}
    payload = {"session_id": "ses_1", "cwd": "/home/me/shop", "asked": {**asked, "metadata": {"command": command}}}
    body = json.dumps(payload).encode()
    hello = {
        "harken": 1,
        "kind": "hook",
        "host": "opencode",
        "moment": "ask",
        "payload": len(body),
        "ppid": os.getpid(),
    }
    with socket.socket(socket.AF_UNIX) as plugin:
        plugin.connect((daemon.home / "run" / "address").read_text().strip().removeprefix("unix:"))
        plugin.sendall(json.dumps({**hello, "pid": 0, "cwd": "/", "env": {}, "token": ""}).encode() + b"\n" + body)
        yield


def page_pictures(browser: Browser, daemon: DaemonProcess, folder: Path | None, name: str = "page") -> str:
    """Look at a page, in both themes; return what it says, without what differs."""
    said, (path, there) = "", PAGES[name]
    for theme in THEMES:
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme, locale="en-GB")
        page = context.new_page()
        page.goto(daemon.call("sign_in")["url"])
        page.locator("html[data-ready] #main").wait_for(state="attached")
        page.goto(f"{daemon.facts['url']}{path}")
        page.locator(there).first.wait_for()
        page.locator("button[disabled].strong").wait_for(state="hidden")
        said = page.locator("body").inner_text()
        if folder is not None:
            page.screenshot(path=folder / f"{name}-{theme}.png")
        context.close()
    return masked(without_empty_lines(said)) + "\n"


def browser_program() -> str:
    """Return the path of a browser."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("There is no browser: install Chromium and put it on PATH.")
    return found


def main(arguments: Sequence[str]) -> int:
    """Make what is missing or old; with `--check` only say what is."""
    is_check = "--check" in arguments
    IMAGES.mkdir(exist_ok=True)
    stale: list[str] = []
    lines = demonstration()
    now = masked(without_empty_lines(plain(lines)))
    for theme in THEMES:
        file = IMAGES / f"demo-{theme}.svg"
        if not file.exists() or masked(said_by_drawing(file.read_text(encoding="utf-8"))) != now:
            stale.append(file.name)
            if not is_check:
                file.write_text(drawing(lines, theme), encoding="utf-8")
    stale += _pages(is_check=is_check)
    state = "older than what they show, run `make record`" if is_check else "made anew"
    sys.stdout.write(f"pictures: {', '.join(stale)}: {state}\n" if stale else "pictures: current\n")
    return 1 if stale and is_check else 0


def _pages(*, is_check: bool) -> list[str]:
    with (
        tempfile.TemporaryDirectory(prefix="harken-") as folder,
        sync_playwright() as playwright,
        shown_daemon(Path(folder) / "home") as daemon,
    ):
        browser = playwright.chromium.launch(executable_path=browser_program(), args=["--no-sandbox"])
        stale = _page("page", browser, daemon, None if is_check else Path(folder))
        with asking(daemon):
            stale += _page("approve", browser, daemon, None if is_check else Path(folder))
        browser.close()
    return stale


def _page(name: str, browser: Browser, daemon: DaemonProcess, folder: Path | None) -> list[str]:
    file = IMAGES / f"{name}.txt"
    said = page_pictures(browser, daemon, folder, name)
    pictures = [f"{name}-{theme}.png" for theme in THEMES]
    if file.exists() and file.read_text(encoding="utf-8") == said:
        return []
    if folder is not None:
        for each in pictures:
            shutil.copy(folder / each, IMAGES / each)
        file.write_text(said, encoding="utf-8")
    return pictures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
