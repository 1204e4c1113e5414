"""The agent program itself, for the tests: it runs its hooks and its inbox, and writes down what its model would get.

`magpie` is a session: prompts come from its pipe until one says `quit`. `magpie --headless` answers one prompt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

VERSION = "1.0"
HOOK_SECONDS = 30.0


def main() -> None:
    """Be Magpie."""
    if "--version" in sys.argv:
        sys.stdout.write(VERSION + "\n")
    elif "--headless" in sys.argv:
        _answer(sys.stdin.read())
    else:
        _converse(sys.argv[sys.argv.index("--prompt") + 1] if "--prompt" in sys.argv else "")


def _answer(prompt: str) -> None:
    fence = json.loads(Path(sys.argv[sys.argv.index("--settings") + 1]).read_text())
    sys.stdout.write(json.dumps({"denied": "shell", "why": f"only {', '.join(fence['tools'])}"}) + "\n")
    sys.stdout.write(json.dumps({"answer": f"Magpie has read {len(prompt)} characters."}) + "\n")


def _converse(first: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inbox, session = Path(folder, "inbox"), uuid.uuid4().hex
        os.mkfifo(inbox)
        environ = {**os.environ, "MAGPIE_SESSION": session, "MAGPIE_INBOX": str(inbox)}
        # Open for writing too: the end of one writer is not the end of the inbox.
        with os.fdopen(os.open(inbox, os.O_RDWR), encoding="utf-8") as prompts:
            _hook("start", session, environ)
            prompt = first or json.loads(prompts.readline())
            while prompt != "quit":
                _note(prompt, _hook("prompt", session, environ, prompt=prompt))
                while kept_going := _hook("stop", session, environ):
                    _note(kept_going)
                prompt = json.loads(prompts.readline())
            _hook("end", session, environ)


def _hook(event: str, session: str, environ: dict[str, str], **more: str) -> str:
    """Run the hooks of an event as the settings say, and return what they want the model to get."""
    settings = json.loads(Path(environ["HOME"], ".magpie", "settings.json").read_text())
    said = ""
    for lines in settings.get("hooks", {}).values():
        payload = json.dumps({"event": event, "session": session, **more})
        done = subprocess.run(
            ["/bin/sh", "-c", lines[event]],
            input=payload,
            capture_output=True,
            check=False,
            env=environ,
            text=True,
            timeout=HOOK_SECONDS,
        )
        said += json.loads(done.stdout)["context"] if done.stdout.strip() else ""
    return said


def _note(*texts: str) -> None:
    """Write down what the model would get."""
    with Path(os.environ["MAGPIE_LOG"]).open("a", encoding="utf-8") as log:
        log.write("".join(json.dumps(text) + "\n" for text in texts if text))
