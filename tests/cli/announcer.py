"""An MCP server on a pipe, for tests: once it is greeted it announces what its arguments say, as CHANNEL=TEXT.

`CHANNEL*9=TEXT` says the text nine times in one announcement: an argument cannot be as long as an announcement.
Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer the handshake, announce, and stay until the pipe is closed."""
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == "initialize":
            info = {"name": "announcer \u001b[31m", "version": "1"}
            said = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {}, "serverInfo": info}
            answer({"id": asked["id"], "result": said})
        elif asked.get("method") == "notifications/initialized":
            for word in sys.argv[1:]:
                channel, _, text = word.partition("=")
                name, _, times = channel.rpartition("*")
                if name and times.isdigit():
                    channel, text = name, text * int(times)
                answer({"method": "message", "params": {"channel": channel, "content": text}})
        elif "id" in asked:
            answer({"id": asked["id"], "error": {"code": -32601, "message": "no"}})


def answer(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
