"""The process of an MCP server that speaks on a pipe: started with little, and gone when we are.

It leads a process group of its own, which is ended as a whole. On POSIX a tiny shell waits on a pipe from us beside it:
when we die, however that happens, the pipe closes and the shell ends the group. Without it, a server that ignores the
end of its input would stay for ever. What it says on it is `stdio.py`'s business.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from harken.sources.mcp.link import Lost
from harken.sources.mcp.settings import McpSettings

END_SECONDS: Final = 1.0  # for each step of ending it

# What programs need to find themselves and their files. Everything else may be a secret of somebody else.
PASSED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL") + (
    ("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
    if os.name == "nt"
    else ()
)
_LEASH: Final = 'read -r _; kill -s TERM -- "-$1" 2>/dev/null; sleep 2; kill -s KILL -- "-$1" 2>/dev/null'


def child_environment(own: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the few variables it needs, and what the person configured."""
    return {**{name: own[name] for name in PASSED if name in own}, **extra}


@asynccontextmanager
async def running(settings: McpSettings) -> AsyncIterator[Process]:
    """Start the server's program and end it, with everything it started, when the block is left; raises `Lost`."""
    try:
        process = await anyio.open_process(
            [settings.command, *settings.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_folder(settings),
            env=child_environment(os.environ, settings.env),
            start_new_session=True,
        )
    except (OSError, ValueError, RuntimeError) as exc:
        raise Lost(_not_started(exc, settings)) from exc
    leash: Process | None = None
    try:
        leash = await _leash(process.pid)
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            await _let_go(leash)


def _folder(settings: McpSettings) -> Path | None:
    return Path(settings.cwd).expanduser() if settings.cwd else None


async def _leash(group: int) -> Process | None:
    if os.name != "posix":
        return None
    return await anyio.open_process(
        ["/bin/sh", "-c", _LEASH, "harken-leash", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        start_new_session=True,
    )


async def _let_go(leash: Process | None) -> None:
    if leash is None:
        return
    with suppress(ProcessLookupError):
        leash.kill()
    await leash.wait()
    await leash.aclose()


async def _end(process: Process) -> None:
    """End politely: first its input, then a signal, then by force; the whole group each time."""
    if process.stdin is not None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    _signal(process, signal.SIGTERM)
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    _signal(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    with anyio.move_on_after(END_SECONDS):
        await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    # The group also when its leader is gone: what it started may still run.
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _not_started(exc: Exception, settings: McpSettings) -> str:
    folder = _folder(settings)
    if isinstance(exc, (FileNotFoundError, NotADirectoryError)) and folder is not None and not folder.is_dir():
        return f"its folder does not exist: check sources.{settings.name}.cwd"
    if isinstance(exc, FileNotFoundError):
        return f"the program {settings.address} is not found: check sources.{settings.name}.command"
    if isinstance(exc, PermissionError):
        return f"the program {settings.address} may not be run: check sources.{settings.name}.command"
    return f"the program {settings.address} cannot be started"
