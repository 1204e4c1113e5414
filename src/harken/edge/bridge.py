"""MCP between a host's stdio and a Harken elsewhere, by Streamable HTTP: `mcp.py --url URL --token-file FILE`.

For hosts that only start programs. Each message of the host is one POST; what comes back, also on the stream of hints,
is written as it is, a line each. An answer whose connection is lost is fetched again where the protocol allows that,
and a session that the other side has forgotten is begun anew. What cannot be had is answered with an error, because a
host waits for an answer. Above is the host, below `/mcp` of the other daemon. Standard library only.
"""

from __future__ import annotations

import binascii
import http.client
import json
import os
import sys
import threading
import time
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SILENCE_SECONDS = 60.0  # the other side gives signs of life more often
RESUME_SECONDS = 50.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
MAX_AT_ONCE = 64
MAX_LINE = 16 << 20
UNAVAILABLE, PARSE_ERROR = -32000, -32700
ACCEPTED, REDIRECT, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED = 202, 300, 401, 403, 404, 405
META = "io.modelcontextprotocol/"
OWN_ID = "harken-begins-anew"  # of a greeting that the host does not know of
NAMED = (("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri"))


class RemoteRefusal(Exception):
    """The other side said no, or could not be reached: what the host is told."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class StreamPlace:
    """How far a stream was read: the id of the last event that came."""

    def __init__(self) -> None:
        self.last = ""


class LostStreamError(Exception):
    """An answer ended before it was whole; `place` is how far it came."""

    def __init__(self, place: StreamPlace) -> None:
        super().__init__(place.last)
        self.place = place


class Bridge:
    """One host on this side, one MCP session on the other."""

    def __init__(self, url: str, token_file: str) -> None:
        self._place = urlsplit(url)
        self._token_file = token_file
        self._session = ""
        self._version = ""
        self._hello: dict[str, Any] | None = None
        self._is_ready = threading.Event()
        self._renewing = threading.Lock()
        self._writing = threading.Lock()
        self._slots = threading.Semaphore(MAX_AT_ONCE)
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._is_listening = False

    def run(self) -> None:
        """Relay until the host is gone."""
        while line := sys.stdin.buffer.readline(MAX_LINE):
            if line.strip():
                self._take(line)
        self._leave()

    # -- from the host -----------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._fail(None, "This line is not valid JSON.", PARSE_ERROR)
            return
        if not isinstance(message, dict):
            self._fail(None, "This is not a JSON-RPC 2.0 message.", PARSE_ERROR)
            return
        method = message.get("method")
        if method == "notifications/cancelled" and self._cancel(message):
            return
        if method == "initialize":
            self._hello = message
        elif not _era(message):
            self._is_ready.wait(SILENCE_SECONDS)
        self._slots.acquire()
        if method and "id" in message:
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        else:
            # In their order: an answer to the other side, and what the host tells.
            self._answer(message)
            if method == "notifications/initialized":
                self._listen()

    def _cancel(self, message: dict[str, Any]) -> bool:
        """Close the answer that a host gives up; return whether that says it all."""
        params = message.get("params")
        key = json.dumps(params.get("requestId")) if isinstance(params, dict) else ""
        connection = self._open.get(key)
        if connection is None or self._session:
            return False
        _close(connection)
        return True

    def _answer(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        try:
            self._ask(message)
        except RemoteRefusal as exc:
            if message.get("method") and "id" in message:
                self._fail(number, str(exc), UNAVAILABLE)
            else:
                _log(str(exc))
        finally:
            if message.get("method") == "initialize":
                self._is_ready.set()
            self._slots.release()

    def _fail(self, number: object, text: str, code: int) -> None:
        self._write({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})

    def _write(self, message: object) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except OSError:
                os._exit(0)

    # -- to the other side -------------------------------------------------------------------------------------

    def _ask(self, message: dict[str, Any]) -> None:
        session = self._session
        try:
            self._post(message)
        except LostStreamError as exc:
            self._resume(message, exc.place)
        except RemoteRefusal as exc:
            # Of a session that is not there nothing was done.
            if exc.status != NOT_FOUND or not session or not self._renewed(session):
                raise
            try:
                self._post(message)
            except LostStreamError as lost:
                self._resume(message, lost.place)

    def _post(self, message: dict[str, Any]) -> None:
        connection = self._connection()
        key = json.dumps(message.get("id"))
        if "id" in message:
            self._open[key] = connection
        try:
            try:
                body = json.dumps(message, separators=(",", ":")).encode()
                connection.request("POST", self._place.path or "/", body, self._headers(message))
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as exc:
                raise self._unreachable(exc) from exc
            except ValueError as exc:
                raise RemoteRefusal("This request has a name that cannot be sent.") from exc
            if answer.status == ACCEPTED:
                return
            if message.get("method") == "initialize" and answer.status < REDIRECT:
                self._session = answer.headers.get("mcp-session-id", "")
            self._read(answer, message)
        finally:
            self._open.pop(key, None)
            _close(connection)

    def _read(self, answer: http.client.HTTPResponse, message: dict[str, Any]) -> None:
        """Pass on what an answer says; raises when it does not hold the answer to the message."""
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/event-stream") and answer.status < REDIRECT:
            place = StreamPlace()
            if any(self._pass_on(said, message) for said in _events(answer, place)):
                return
            if "id" in message and message.get("method"):
                raise LostStreamError(place)
            return
        try:
            said = json.loads(answer.read() or b"null")
        except (OSError, ValueError, http.client.HTTPException) as exc:
            raise self._unreachable(exc) from exc
        if isinstance(said, dict) and "jsonrpc" in said and said.get("id") is not None:
            self._pass_on(said, message)
        elif answer.status >= REDIRECT:
            raise RemoteRefusal(_reason(answer.status, said), answer.status)

    def _pass_on(self, said: dict[str, Any], asked: dict[str, Any]) -> bool:
        """Write a message to the host; return whether it is the answer that was asked for."""
        is_answer = "method" not in said and said.get("id") == asked.get("id") and "id" in said
        if is_answer and asked.get("method") == "initialize" and isinstance(said.get("result"), dict):
            self._version = str(said["result"].get("protocolVersion", ""))
        if not (is_answer and asked.get("id") == OWN_ID):
            self._write(said)
        return is_answer

    def _resume(self, message: dict[str, Any], place: StreamPlace) -> None:
        """Fetch an answer whose connection was lost, for a while."""
        until, pause = time.monotonic() + RESUME_SECONDS, FIRST_PAUSE
        while place.last and self._session and time.monotonic() < until:
            try:
                if any(self._pass_on(said, message) for said in self._stream(place)):
                    return
            except RemoteRefusal as exc:
                if exc.status in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED):
                    break
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise RemoteRefusal("The connection was lost before the answer came. It may or may not have been done.")

    def _renewed(self, lost: str) -> bool:
        """Begin a new session in place of one that the other side has forgotten; return whether there is one."""
        with self._renewing:
            if self._session != lost:
                return bool(self._session)
            if self._hello is None:
                return False
            self._session = ""
            self._post({**self._hello, "id": OWN_ID})
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            return bool(self._session)

    # -- hints -------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._session and not self._is_listening:
            self._is_listening = True
            threading.Thread(target=self._keep_listening, daemon=True).start()

    def _keep_listening(self) -> None:
        place, pause, session = StreamPlace(), FIRST_PAUSE, self._session
        while True:
            if session != self._session:
                place, session = StreamPlace(), self._session
            try:
                for said in self._stream(place):
                    pause = FIRST_PAUSE
                    self._write(said)
            except RemoteRefusal as exc:
                if exc.status in (UNAUTHORIZED, FORBIDDEN, NOT_ALLOWED):
                    return
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _stream(self, place: StreamPlace) -> Iterator[dict[str, Any]]:
        connection = self._connection()
        try:
            headers = self._headers({}) | ({"Last-Event-ID": place.last} if place.last else {})
            connection.request("GET", self._place.path or "/", headers=headers)
            answer = connection.getresponse()
            if answer.status >= REDIRECT:
                raise RemoteRefusal("There is no stream.", answer.status)
            yield from _events(answer, place)
        except (OSError, http.client.HTTPException) as exc:
            raise self._unreachable(exc) from exc
        finally:
            _close(connection)

    def _leave(self) -> None:
        if self._session:
            connection = self._connection()
            try:
                connection.request("DELETE", self._place.path or "/", headers=self._headers({}))
                connection.getresponse()
            except (RemoteRefusal, OSError, http.client.HTTPException):
                pass
        os._exit(0)

    # -- inner -------------------------------------------------------------------------------------------------

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._place.hostname or "", self._place.port
        if self._place.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=SILENCE_SECONDS)
        return http.client.HTTPSConnection(host, port, timeout=SILENCE_SECONDS)

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        said = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        said["Authorization"] = f"Bearer {self._token()}"
        if era := _era(message):
            method = str(message.get("method", ""))
            said |= {"MCP-Protocol-Version": era, "Mcp-Method": method}
            for named, field in NAMED:
                if method == named:
                    said["Mcp-Name"] = _named(str(message["params"].get(field, "")))
        elif self._session:
            said |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": self._version}
        return said

    def _token(self) -> str:
        """Return the token: read each time, because it may be replaced."""
        try:
            with open(self._token_file, encoding="ascii") as file:
                token = file.read(4_096).strip()
        except (OSError, ValueError) as exc:
            raise RemoteRefusal(f"The token cannot be read from {self._token_file}: {exc}.") from exc
        if not token.isprintable() or " " in token:
            raise RemoteRefusal(f"{self._token_file} holds more than a token. Leave the token in it and nothing else.")
        return token

    def _unreachable(self, reason: Exception) -> RemoteRefusal:
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return RemoteRefusal(
            f"Harken at {self._place.netloc} does not answer ({text}). Check the network and its address."
        )


def _era(message: dict[str, Any]) -> str:
    """Return the revision that a message of 2026 or later names."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    named = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
    return named if isinstance(named, str) else ""


def _named(value: str) -> str:
    """Return a name as a header carries it: what it cannot carry is encoded, as the protocol says."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    return f"=?base64?{binascii.b2a_base64(value.encode('utf-8', 'replace'), newline=False).decode()}?="


def _events(answer: http.client.HTTPResponse, place: StreamPlace) -> Iterator[dict[str, Any]]:
    """Yield the messages of a stream until it ends, and note how far it came."""
    data = b""
    while True:
        try:
            line = answer.readline(MAX_LINE)
        except (OSError, ValueError, http.client.HTTPException):
            return
        if not line:
            return
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data += line[5:].strip()
        elif line.startswith(b"id:"):
            place.last = line[3:].strip().decode("ascii", "replace")
        elif not line:
            said = _parsed(data) if data else None
            data = b""
            if isinstance(said, dict):
                yield said


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _reason(status: int, said: object) -> str:
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return f"{error['message']} {error.get('hint', '')}".strip()
    return f"The other side answered {status}."


def _close(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    try:
        if sock is not None:
            sock.shutdown(2)
    except OSError:
        pass
    connection.close()


def _log(text: str) -> None:
    sys.stderr.write(f"harken: {text}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> None:
    """Serve until the host is gone."""
    named = dict(zip(arguments[::2], arguments[1::2], strict=False))
    url, token_file = named.get("--url", ""), named.get("--token-file", "")
    place = urlsplit(url)
    is_safe = place.scheme == "https" or (place.scheme == "http" and place.hostname in LOOPBACK)
    if not place.hostname or not is_safe or not token_file:
        _log("mcp needs --url https://HOST/mcp and --token-file FILE.")
        raise SystemExit(2)
    Bridge(url, token_file).run()
