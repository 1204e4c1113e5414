"""Payloads of our plugin in opencode's hooks as version 1.18.33 was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookSample, hook_sample
from harken.sessions.events import HookMoment

_COMMON: Final[Mapping[str, object]] = {"session_id": "ses_1", "cwd": "/code/shop", "turn": "msg_1"}
_MEANT: Final[Mapping[str, Any]] = {"native": "ses_1", "cwd": "/code/shop", "turn": "msg_1"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.PROMPT, {"prompt": "Fix it. (d-1)"}, prompt="Fix it. (d-1)"),
    _sample(HookMoment.TOOL, {"tool": "bash", "is_step": True, "results": []}, is_step=True, results=()),
    _sample(HookMoment.TOOL, {"tool": "harken_inbox_pull", "is_step": False, "results": ["d-1"]}, results=("d-1",)),
    _sample(HookMoment.STOP, {"is_interrupted": True}, is_interrupted=True),
    _sample(HookMoment.STOP, {"is_interrupted": False}),
    _sample(HookMoment.END, {}),
)
