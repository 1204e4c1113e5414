"""The verb `serve`: the daemon itself. The only verb that imports it."""

from __future__ import annotations

import gc
import logging
import os
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING

import click

from harken.cli.invocation import Invocation
from harken.cli.verbs import verb
from harken.config.home import Home, ensure
from harken.control.start import leave_reason
from harken.errors import Conflict, HarkenError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harken.config.satellite import JoinRecord
    from harken.config.settings import Settings

    Run = Callable[[Home, Settings], Awaitable[None]]

_log = logging.getLogger("harken.daemon")


@verb("serve")
@click.option("--detached", is_flag=True, help="For programs that start it: no output, errors go to the log.")
@click.option("--unless-down", is_flag=True, hidden=True, help="For edges: do not start while Harken is stopped.")
def serve(asked: Invocation, *, detached: bool, unless_down: bool) -> None:
    """Run the daemon in the foreground, until SIGTERM or Ctrl-C."""
    if unless_down and asked.home.down_file.exists():
        return
    with _LastWords(asked.home, is_detached=detached):
        try:
            _serve(asked.home, is_detached=detached)
        except Conflict:
            if not detached:
                raise


def _serve(home: Home, *, is_detached: bool) -> None:
    from harken.config.home import single_instance
    from harken.memory import allowed_bytes, bound_arenas, refuse_too_little

    refuse_too_little(allowed_bytes())
    bound_arenas()
    ensure(home)
    # Before the imports, which take most of a start: of many that hosts start at once, all but one leave right away.
    with single_instance(home.lock_file):
        _serve_alone(home, is_detached=is_detached)


def _serve_alone(home: Home, *, is_detached: bool) -> None:
    import anyio

    # What is imported stays: a sixth of the start would be spent on looking through it for garbage.
    gc.disable()
    from harken import log
    from harken.config.load import load
    from harken.config.satellite import joined_to

    record = joined_to(home)
    run = _main_daemon() if record is None else _satellite(record)
    gc.enable()
    (home.run_dir / "failed").unlink(missing_ok=True)
    loaded = load(home, {}, os.environ)
    options = loaded.settings.log
    with log.configure(
        home,
        options.level,
        to_stderr=not is_detached,
        max_bytes=options.max_bytes,
        backups=options.backups,
        layout=options.format,
    ):
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        try:
            anyio.run(
                partial(run, home, loaded.settings),
                backend_options={"use_uvloop": _is_fast_loop_used()},
            )
        except BaseExceptionGroup as group:
            raise _only(group) from group


def _main_daemon() -> Run:
    from harken.daemon import compose

    return compose.serve


def _satellite(record: JoinRecord) -> Run:
    from harken.daemon.satellites import satellite

    return partial(satellite.serve, record=record)


def _is_fast_loop_used() -> bool:
    """Whether uvloop is there, and memory: it ends the process where the loop of Python says that there is none."""
    from harken.memory import AMPLE_BYTES, allowed_bytes

    allowed = allowed_bytes()
    return find_spec("uvloop") is not None and (allowed is None or allowed >= AMPLE_BYTES)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what an error group is about: the error of ours in it, if there is one."""
    ours = group.subgroup(HarkenError)
    error: BaseException = ours if ours is not None else group
    while isinstance(error, BaseExceptionGroup) and (ours is not None or len(error.exceptions) == 1):
        error = error.exceptions[0]
    return error


class _LastWords:
    """Says why the daemon ended, where it can be found: one in the background has no terminal for it."""

    def __init__(self, home: Home, *, is_detached: bool) -> None:
        self._home = home
        self._is_detached = is_detached

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None or error is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        from harken import log

        fault = None if isinstance(error, HarkenError) else error
        reason = error if isinstance(error, HarkenError) else _fault(kind, error)
        if self._is_detached:
            with suppress(HarkenError):
                leave_reason(self._home, reason)
        if fault is not None or self._is_detached:
            with log.configure(self._home, "info", to_stderr=False, layout=_layout(self._home)):
                _log.error("cannot serve: %s %s", reason.message, reason.hint, exc_info=fault)


def _layout(home: Home) -> str:
    """Return how the log is written, as far as the settings can be read."""
    from harken import log
    from harken.config.load import load

    try:
        return load(home, {}, os.environ).settings.log.format
    except HarkenError:
        return log.TEXT


def _fault(kind: type[BaseException], error: BaseException) -> HarkenError:
    return HarkenError(
        f"The daemon failed ({kind.__name__}: {error}).",
        "Please report it, with the end of its log.",
    )
