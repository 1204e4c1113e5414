"""What Codex itself makes of settings: asked in a scratch home, so that a person's own is neither used nor changed.

Codex writes into its home whatever it is asked, even for its version. So every question goes to a private copy of the
two files that matter, in a folder that is gone afterwards. Above it is `connect`; it never starts a session.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from harken.errors import Unavailable
from harken.hosts.codex.appserver import hooks_of, private_server

_RUN_SECONDS: Final = 20.0
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedHook:
    """One hook as Codex sees it."""

    place: str  # what follows the path of the file in its key: event, group, hook
    source: str  # path of the file
    command: str
    hash: str
    is_enabled: bool
    is_trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexInspector:
    """An installed Codex, to be asked about settings."""

    program: Path
    path: str  # where programs are found: Codex may be a script of another one

    def version(self) -> str:
        """Return its version; empty when it does not say one."""
        with _scratch({}) as home:
            found = _VERSION.search(self._run(home, home, "--version"))
        return found[0] if found else ""

    def hooks(
        self, files: Mapping[str, bytes | None], *, home: Path, cwd: Path | None = None
    ) -> Sequence[InspectedHook]:
        """Return the hooks in force with these files in place of those in `home`; raises `Unavailable`."""
        with _scratch(files) as scratch:
            _move_keys(scratch, home)
            return anyio.run(self._hooks, scratch, home, cwd or scratch)

    def server(self, files: Mapping[str, bytes | None], name: str, *, cwd: Path | None = None) -> Mapping[str, object]:
        """Return how it would start an MCP server; empty when it knows none of that name."""
        with _scratch(files) as scratch:
            try:
                value = json.loads(self._run(scratch, cwd or scratch, "mcp", "get", name, "--json"))
            except ValueError:
                return {}
        return value if isinstance(value, dict) else {}

    async def _hooks(self, scratch: Path, home: Path, cwd: Path) -> Sequence[InspectedHook]:
        async with private_server(str(self.program), cwd=str(cwd), env=self._environ(scratch)) as server:
            listing = await server.call("hooks/list", {"cwds": [str(cwd)]})
        return [_judged(hook, scratch, home) for hook in hooks_of(listing)]

    def _run(self, scratch: Path, cwd: Path, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [str(self.program), *arguments],
                env=self._environ(scratch),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_RUN_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""

    def _environ(self, scratch: Path) -> dict[str, str]:
        return {"HOME": str(scratch), "CODEX_HOME": str(scratch), "PATH": self.path, "LANG": "C.UTF-8"}


@contextmanager
def _scratch(files: Mapping[str, bytes | None]) -> Iterator[Path]:
    try:
        # Codex may still write its last lines when it has been answered.
        with TemporaryDirectory(prefix="harken-codex-", ignore_cleanup_errors=True) as name:
            folder = Path(name).resolve()
            for file, data in files.items():
                if data is not None:
                    (folder / file).write_bytes(data)
            yield folder
    except OSError as exc:
        raise Unavailable(f"A scratch folder cannot be used: {exc.strerror}.") from exc


def _move_keys(scratch: Path, home: Path) -> None:
    """Trust is noted by the path of the file: let what was said of the real one hold for its copy."""
    config = scratch / "config.toml"
    if config.exists():
        there, here = f"{home / 'hooks.json'}:".encode(), f"{scratch / 'hooks.json'}:".encode()
        config.write_bytes(config.read_bytes().replace(there, here))


def _judged(hook: Mapping[str, object], scratch: Path, home: Path) -> InspectedHook:
    source = str(hook.get("sourcePath", ""))
    return InspectedHook(
        place=str(hook.get("key", "")).removeprefix(source).removeprefix(":"),
        source=str(home / "hooks.json") if source == str(scratch / "hooks.json") else source,
        command=str(hook.get("command", "")),
        hash=str(hook.get("currentHash", "")),
        is_enabled=hook.get("enabled") is True,
        is_trusted=hook.get("trustStatus") in {"trusted", "managed"},
    )
