"""A small agent for the tests: it speaks the protocol by hand, line by line, and what it does is named by its prompts.

Run as a program: `python echo_agent.py [VERSION]`.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main(version: int) -> None:
    """Serve one client until it hangs up."""
    asked: dict[int, tuple[object, str]] = {}  # our questions, by number: the prompt that waits for each
    for line in sys.stdin:
        said = json.loads(line)
        params = said.get("params", {})
        match said.get("method"):
            case "initialize":
                _answer(said["id"], _greeting(version))
            case "session/new":
                _answer(said["id"], {"sessionId": "s-1"})
            case "session/list":
                _list(said["id"], params)
            case "session/prompt":
                _prompt(said["id"], params, version, asked)
            case "session/close" | "session/resume" | "session/load":
                _answer(said["id"], {})
            case None if said.get("id") in asked:
                prompt, session = asked.pop(said["id"])
                _tell(session, {"sessionUpdate": "agent_message_chunk", "content": _text(json.dumps(said["result"]))})
                _answer(prompt, {"stopReason": "end_turn"})
            case None | "session/cancel" | "$/cancel_request":
                pass
            case _:
                _write({"id": said["id"], "error": {"code": -32601, "message": "Method not found"}})


def _greeting(version: int) -> dict[str, object]:
    if version == 2:
        return {"protocolVersion": 2, "info": {"name": "echo", "version": "1"}, "capabilities": {"session": {}}}
    can = {"loadSession": True, "sessionCapabilities": {"list": {}, "close": {}}}
    meta = {"steering": {"supported": True}}
    return {
        "protocolVersion": 1,
        "agentInfo": {"name": "echo", "version": "1"},
        "agentCapabilities": can,
        "_meta": meta,
    }


def _list(request: object, params: dict[str, str]) -> None:
    page = {"sessions": [{"sessionId": "s-2", "cwd": "/b"}]} if params.get("cursor") else None
    _answer(request, page or {"sessions": [{"sessionId": "s-1", "cwd": "/a", "title": "one"}], "nextCursor": "more"})


def _prompt(request: object, params: dict[str, object], version: int, asked: dict[int, tuple[object, str]]) -> None:
    session, parts = str(params["sessionId"]), params["prompt"]
    said = parts[0]["text"] if isinstance(parts, list) else ""
    if said == "ask":
        number = 1000 + len(asked)
        asked[number] = (request, session)
        tool = {"toolCallId": "c-1", "title": "rm -rf /", "kind": "execute", "rawInput": {"command": "rm -rf /"}}
        options = [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        question = {"sessionId": session, "toolCall": tool, "options": options}
        _write({"id": number, "method": "session/request_permission", "params": question})
        return
    if said == "sign in":
        _write({"id": request, "error": {"code": -32000, "message": "Authentication required"}})
        return
    if said == "leave a child":
        subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    if version == 2:
        _answer(request, {"messageId": "m-1"})
        _tell(session, {"sessionUpdate": "user_message", "messageId": "m-1", "content": [_text(said)]})
        _tell(session, {"sessionUpdate": "state_update", "state": "running"})
    sys.stderr.write("a word on standard error\n")
    sys.stdout.write("a line that is no message\n")
    _tell(session, {"sessionUpdate": "agent_message_chunk", "content": _text(said)})
    if version == 2:
        _tell(session, {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"})
    else:
        _answer(request, {"stopReason": "end_turn"})


def _text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def _tell(session: str, update: dict[str, object]) -> None:
    _write({"method": "session/update", "params": {"sessionId": session, "update": update}})


def _answer(request: object, result: object) -> None:
    _write({"id": request, "result": result})


def _write(said: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **said}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
