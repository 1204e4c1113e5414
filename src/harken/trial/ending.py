"""Ends a program and everything that it started, also what it left behind without a parent.

Every program of a trial is started with a mark in its environment, which whatever it starts inherits. Nothing without
the mark, and no process that merely got the number of one, is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from typing import Final

import psutil

MARK: Final = "HARKEN_TRIAL"
STOP_SECONDS: Final = 5.0


def new_mark() -> str:
    """Return a value for `MARK` that no other trial has."""
    return secrets.token_hex(8)


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a program that leads a group of its own, and everything with its mark; politely first."""
    started = _children(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)
    for left in (*started, *_marked(mark)):
        # A process id that is used anew belongs to another process, and is left alone.
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "")
    except psutil.Error:
        return ""
