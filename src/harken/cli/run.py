"""Runs one command and turns its end into one sentence, one hint and an exit code.

Exit codes: 0 done, 1 a fault of Harken's own, 2 to 7 by the class of the error (see `harken.errors`), 130 on Ctrl-C,
141 when the reader of the output went away. There are no stack traces, except with `python -X dev`.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from harken.cli.invocation import COMPLETE_VARIABLE, INTERRUPTED, PIPE_CLOSED
from harken.cli.output import json_text
from harken.display import visible
from harken.errors import HarkenError, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


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
        return _perform(arguments)
    except HarkenError as exc:
        _show_fault(exc)
        return _show(exc, as_json=as_json)
    except OSError as exc:
        if exc.filename is None:
            raise
        return _show(UserError(f"{exc.filename}: {exc.strerror}."), as_json=as_json)
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the shell's prompt begins on a line of its own, as after any verb
        return INTERRUPTED


def _perform(arguments: list[str]) -> int:
    """Do it without click where the words are plain, else with it."""
    if COMPLETE_VARIABLE in os.environ:
        from harken.cli.completion import print_completions

        code = print_completions(os.environ)
    else:
        from harken.cli.invocation import perform

        code = perform(arguments)
    if code is not None:
        return code
    from harken.cli.verbs import run_click

    return run_click(arguments)


def _show_fault(error: HarkenError) -> None:
    """Print where another package failed, for who writes it."""
    if sys.flags.dev_mode:
        import traceback

        from harken.plugins import PluginFault

        if isinstance(error, PluginFault):
            traceback.print_exception(error)


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
