"""An agent that speaks the Agent Client Protocol, and does what words in its prompts say. It notes what it is told.

Run by the daemon in the folder of a task; the notes are in `heard.jsonl` there. `AGENT_SPEAKS` chooses the version, and
whether it can be steered. While it holds a turn it waits for a line in the pipe `go`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Final, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""An object of JSON: the agent looks into it."""

SPEAKS: Final = os.environ.get("AGENT_SPEAKS", "1").split()
VERSION: Final = int(SPEAKS[0])
OPTIONS: Final = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "ever", "name": "Allow every shell command", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
ASKED: Final = 700


class Agent:
    """One agent, with one conversation."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._session = ""
        self._prompt: object = None  # the request that is answered at the end of the turn
        self._messages = 0

    def run(self) -> None:
        """Serve the client until it hangs up."""
        for line in sys.stdin:
            said = json.loads(line)
            with Path("heard.jsonl").open("a") as notes:
                notes.write(json.dumps(said) + "\n")
            self._hear(said.get("method"), said.get("id"), said.get("params") or {}, said)

    def _hear(self, method: object, number: object, params: Fields, said: Fields) -> None:
        match method:
            case "initialize":
                self._answer(number, greeting())
            case "session/new":
                self._session = f"s-{os.getpid()}"
                self._answer(number, {"sessionId": self._session})
            case "session/load" | "session/resume":
                self._session = str(params["sessionId"])
                self._say("agent_message_chunk", content=text("what was said before"))
                self._answer(number, {})
            case "session/prompt":
                self._take(number, params["prompt"][0]["text"])
            case "session/cancel":
                self._end("cancelled")
            case "_session/steering":
                self._say("agent_message_chunk", content=text("steered"))
                self._answer(number, {"outcome": "injected"})
            case None if number == ASKED:
                self._decided(said.get("result") or {})
            case "session/close":
                self._answer(number, {})
            case _:
                pass

    def _take(self, number: object, said: str) -> None:
        self._prompt = number
        if VERSION > 1:
            self._messages += 1
            name = f"m-{self._messages}"
            self._answer(number, {"messageId": name})
            self._say("user_message", messageId=name, content=[text(said)])
            self._say("state_update", state="running")
        if "DIE" in said:
            sys.stderr.write("it fell over\n")
            os._exit(3)
        if "SIGN IN" in said:
            self._write({"id": number, "error": {"code": -32000, "message": "Authentication required"}})
        elif "ASK" in said:
            self._tool("pending", kind="execute", rawInput={"command": "touch made"}, title="touch made")
            tool = {"toolCallId": "c-1", "title": "touch made", "kind": "execute", "status": "pending"}
            params = {"sessionId": self._session, "toolCall": tool, "options": OPTIONS}
            self._write({"id": ASKED, "method": "session/request_permission", "params": params})
        elif "HOLD" in said:
            if "SILENT" not in said:
                self._tool("in_progress", kind="execute", title="sleep")
            threading.Thread(target=self._hold, daemon=True).start()
        else:
            self._show(said)
            self._end("end_turn")

    def _show(self, said: str) -> None:
        for part in ("I have ", "read it."):
            self._say("agent_message_chunk", content=text(part))
        if "EDIT" in said:
            diff = {"type": "diff", "path": "app.py", "oldText": "one\n", "newText": "two\n"}
            self._tool("completed", kind="edit", title="Edit app.py \x1b[31m\u202e", content=[diff])
            steps = [{"content": "look", "status": "completed"}, {"content": "change it", "status": "pending"}]
            self._say("plan", entries=steps)

    def _hold(self) -> None:
        with Path("go").open() as go:
            go.readline()
        self._tool("completed")
        self._end("end_turn")

    def _decided(self, result: Fields) -> None:
        chosen = result["outcome"].get("optionId")
        if chosen in ("yes", "ever"):
            Path("made").touch()
        self._tool("completed" if chosen in ("yes", "ever") else "failed")
        self._end("end_turn")

    def _end(self, stop: str) -> None:
        number, self._prompt = self._prompt, None
        if number is None:
            return
        if VERSION > 1:
            self._say("state_update", state="idle", stopReason=stop)
        else:
            self._answer(number, {"stopReason": stop})

    def _tool(self, status: str, **more: object) -> None:
        self._say("tool_call" if more else "tool_call_update", toolCallId="c-1", status=status, **more)

    def _say(self, reported: str, /, **more: object) -> None:
        update = {"sessionUpdate": reported, **more}
        self._write({"method": "session/update", "params": {"sessionId": self._session, "update": update}})

    def _answer(self, number: object, result: object) -> None:
        self._write({"id": number, "result": result})

    def _write(self, said: Fields) -> None:
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **said}) + "\n")
            sys.stdout.flush()


def greeting() -> Fields:
    """Return what the agent says of itself."""
    if VERSION > 1:
        return {"protocolVersion": 2, "info": {"name": "fake", "version": "1"}, "capabilities": {"session": {}}}
    can = {"loadSession": True, "sessionCapabilities": {"close": {}}}
    meta = {"steering": {"supported": "steer" in SPEAKS}}
    return {"protocolVersion": 1, "agentInfo": {"name": "fake"}, "agentCapabilities": can, "_meta": meta}


def text(said: str) -> Fields:
    """Return a part of a message."""
    return {"type": "text", "text": said}


if __name__ == "__main__":
    Agent().run()
