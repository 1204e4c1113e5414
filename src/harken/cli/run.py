"""Runs one command and turns its end into one sentence, one hint and an exit code.

Exit codes: 0 done, 1 a fault of Harken's own, 2 to 7 by the class of the error (see `harken.errors`), 130 on Ctrl-C,
141 when the reader of the output went away. There are no stack traces, except with `python -X dev`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from types import TracebackType

import click

from harken.cli.output import json_text
from harken.cli.verbs import PIPE_CLOSED, harken
from harken.display import visible
from harken.errors import HarkenError, UserError
from harken.plugins import PluginFault

INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return the exit code."""
    _open_streams()
    if not sys.flags.dev_mode:
        sys.excepthook = _apologise
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
        return PIPE_CLOSED
    except OSError as exc:
        _abandon_output()
        return _show(HarkenError(f"The output cannot be written: {exc.strerror}."), as_json=False)
    return code


def _open_streams() -> None:
    """Make sure that there is something to print to, and that no character stops it."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _abandon_output() -> None:
    # The interpreter flushes once more when it ends; that must not complain either.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        code = harken.main(arguments, prog_name="harken", complete_var="_HARKEN_COMPLETE", standalone_mode=False)
    except HarkenError as exc:
        if sys.flags.dev_mode and isinstance(exc, PluginFault):
            traceback.print_exception(exc)  # for who writes the package
        return _show(exc, as_json=as_json)
    except click.UsageError as exc:
        verb = exc.ctx.command_path if exc.ctx else "harken"
        return _show(UserError(_plain(exc.format_message()), f"See: {verb} --help"), as_json=as_json)
    except OSError as exc:
        if exc.filename is None:
            raise
        return _show(UserError(f"{exc.filename}: {exc.strerror}."), as_json=as_json)
    except click.ClickException as exc:
        return _show(UserError(exc.format_message()), as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _plain(message: str) -> str:
    """Return what click says of a number in plain words."""
    for kind, words in (("integer", "whole number"), ("float", "number")):
        message = message.replace(f"is not a valid {kind} range", f"is not a {words}")
        message = message.replace(f"is not a valid {kind}", f"is not a {words}")
    return message


def _show(error: HarkenError, *, as_json: bool) -> int:
    if as_json:
        print(json_text({"error": error.as_dict()}), file=sys.stderr)
        return error.exit_code
    message, *more = visible(error.message).split("\n")
    print(f"harken: {message}", *more, sep="\n  ", file=sys.stderr)
    if error.hint:
        print("  " + visible(error.hint).replace("\n", "\n  "), file=sys.stderr)
    return error.exit_code


def _apologise(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    if issubclass(kind, MemoryError):
        print("harken: There is not enough memory for this.\n  Let it use more: ulimit -v unlimited", file=sys.stderr)
        return
    reason = visible(f"{kind.__name__}: {error}").replace("\n", " ")
    print(f"harken: This is a fault of Harken itself ({reason}).", file=sys.stderr)
    print("  Please report it, with what `python -X dev -m harken …` prints.", file=sys.stderr)
