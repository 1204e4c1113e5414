"""A server on a pipe, for tests: it answers the handshake and then does what its first argument says.

Standard library only, so that it starts quickly. `ERA` in its environment makes it refuse the handshake of 2025.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def say(value: object) -> None:
    """Write one line."""
    sys.stdout.write((value if isinstance(value, str) else json.dumps(value)) + "\n")
    sys.stdout.flush()


def announce(text: str, channel: str = "news") -> None:
    """Announce something."""
    say({"jsonrpc": "2.0", "method": "channel/message", "params": {"channel": channel, "content": text}})


def handshake() -> None:
    """Answer until the client is content, in the era that we know."""
    while True:
        asked = json.loads(sys.stdin.readline())
        method = asked.get("method")
        is_modern = "ERA" in os.environ
        if method == "initialize" and is_modern:
            say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}})
        elif method == "server/discover":
            offered = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
            say({"jsonrpc": "2.0", "id": asked["id"], "result": offered})
        elif method == "initialize":
            info = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "child", "version": "1"}}
            say({"jsonrpc": "2.0", "id": asked["id"], "result": info})
        elif method in ("notifications/initialized", "subscriptions/listen"):
            return


def echo() -> None:
    """Announce what the client answers, and the names of the environment."""
    say({"jsonrpc": "2.0", "id": 0, "method": "ping"})
    while "method" in json.loads(line := sys.stdin.readline()):
        pass  # what it asks meanwhile
    announce(line.strip())
    announce(json.dumps(sorted(os.environ)))
    announce(str(Path.cwd()))
    sys.stdin.read()


def once() -> None:
    """Announce, complain, and end."""
    announce("last words")
    sys.stderr.write(f"failed with key {os.environ.get('KEY', '')}\n")
    sys.exit(3)


def stubborn() -> None:
    """Ignore every polite way of being ended, and have a child that does so too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    other = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)
    if other.stdout is not None:
        other.stdout.readline()
    announce(f"{os.getpid()} {other.pid}")
    while True:
        signal.pause()


def long() -> None:
    """Write a line that is too long, and one that is not."""
    announce("x" * 9_000_000)
    announce("y" * 5_000_000)
    sys.stdin.read()


def deaf() -> None:
    """Ask more than a pipe holds answers to, and read none of them."""
    for number in range(10_000):
        say({"jsonrpc": "2.0", "id": number, "method": "ping"})
        if number % 1_000 == 0:
            announce(str(number))
    announce("after")
    signal.pause()


def burst() -> None:
    """Announce very much at once."""
    for number in range(100_000):
        sys.stdout.write(f'{{"method":"channel/message","params":{{"content":"{number}"}}}}\n')
    sys.stdout.flush()
    sys.stdin.read()


def main() -> None:
    """Do as told."""
    if sys.argv[1] == "mute":
        sys.stdin.read()
        return
    say("Welcome to the server!")
    announce("before the handshake")
    handshake()
    {"echo": echo, "once": once, "stubborn": stubborn, "long": long, "burst": burst, "deaf": deaf}[sys.argv[1]]()


main()
