"""The model as hosts meet it: over HTTP, on this machine only, patient with what it does not know."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from harken.testing import FakeClock
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, in_order
from harken.trial.model import MockModel

SECONDS = 5.0
CHAT = "/v1/chat/completions"


@pytest.fixture
def model() -> Iterator[MockModel]:
    """A running model."""
    with MockModel() as running:
        yield running


def post(model: MockModel, path: str, body: object, method: str = "POST") -> tuple[int, Json]:
    """Send one request and return status and JSON."""
    connection = http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=SECONDS)
    try:
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def prompt(text: str) -> Json:
    """A request of a conversation."""
    tools = [{"type": "function", "function": {"name": "bash"}}]
    return {"model": "m", "messages": [{"role": "user", "content": text}], "tools": tools}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "hello"}]}),
        (CHAT, {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/responses", {"input": "hello"}),
        ("/v1beta/models/any:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}),
    ],
)
def test_all_four_protocols_are_answered_and_recorded(model: MockModel, path: str, body: Json) -> None:
    """Whichever a host speaks, its prompt can be seen."""
    status, answer = post(model, path, body)
    assert status == 200
    assert "ok" in json.dumps(answer)
    assert [asked.text for asked in model.requests] == ["hello"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/unknown", b"{}"),
        ("POST", "/v1beta/models/any:explode", b"{}"),
        ("GET", "/", b""),
        ("POST", CHAT, b"not json"),
        ("POST", CHAT, b"[" * 100_000),
        ("POST", CHAT, b"[1]"),
    ],
)
def test_what_is_not_known_gets_404_and_is_told(model: MockModel, method: str, path: str, body: bytes) -> None:
    """A host that wants something else must fail plainly, and the trial must be able to say what it wanted."""
    status, answer = post(model, path, body, method)
    assert (status, answer["type"]) == (404, "error")
    assert model.strays == (f"{method} {path}",)
    assert model.requests == ()


def test_counting_tokens_is_not_a_question_to_the_model(model: MockModel) -> None:
    """Hosts count before they ask; a count in the record would look like a message that arrived twice."""
    assert post(model, "/v1/messages/count_tokens", {"messages": []}) == (200, {"input_tokens": 1})
    assert model.requests == ()


def test_keys_are_not_kept(model: MockModel) -> None:
    """In a person's own configuration a host may send a real key."""
    connection = http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=SECONDS)
    connection.request(
        "POST", CHAT, json.dumps(prompt("hi")), {"Authorization": "Bearer of-news", "x-api-key": "of-news"}
    )
    connection.getresponse().read()
    connection.close()
    (asked,) = model.requests
    assert "of-news" not in repr((asked, dict(asked.body)))


def test_a_body_in_chunks_is_read(model: MockModel) -> None:
    """HTTP clients send large bodies without saying their length."""
    connection = http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=SECONDS)
    data = json.dumps(prompt("hi")).encode()
    connection.request("POST", CHAT, iter([data[:9], data[9:]]), encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert model.requests[0].text == "hi"


def test_an_answer_can_be_kept_back_while_something_else_happens(model: MockModel) -> None:
    """A test sends a message while the model thinks in this way, with nothing left to timing."""
    answers: list[Json] = []
    model.follow(in_order(ModelAnswer.text("later")))
    asking = threading.Thread(target=lambda: answers.append(post(model, CHAT, prompt("kept"))))
    with model.hold(lambda asked: "kept" in asked.text) as hold:
        asking.start()
        assert hold.wait(SECONDS).text == "kept"
        assert post(model, CHAT, prompt("other"))[0] == 200
        assert answers == []
        hold.release()
        asking.join(SECONDS)
    assert answers[0][0] == 200


def test_a_request_is_awaited_from_a_point_on(model: MockModel) -> None:
    """The same text may have come before; what counts is that it comes again."""
    post(model, CHAT, prompt("one"))
    assert model.wait_for(lambda asked: asked.text == "one", SECONDS).number == 0
    with pytest.raises(TimeoutError, match="0 requests came"):
        model.wait_for(lambda asked: asked.text == "one", 0.01, after=1)


def test_a_host_that_hangs_up_disturbs_nobody(model: MockModel) -> None:
    """Esc closes the connection in the middle of an answer."""
    data = json.dumps(prompt("gone")).encode()
    with model.hold(lambda asked: "gone" in asked.text) as hold:
        host, port = urlsplit(model.url).netloc.split(":")
        with socket.create_connection((host, int(port)), SECONDS) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data)
            hold.wait(SECONDS)
    assert post(model, CHAT, prompt("next"))[0] == 200


def test_a_body_that_is_no_http_disturbs_nobody(model: MockModel, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever connects to a port on this machine is not always a host; people must not see a stack trace for it."""
    host, port = urlsplit(model.url).netloc.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n".encode()
        )
        assert connection.recv(1) == b""
    assert post(model, CHAT, prompt("next"))[0] == 200
    assert capfd.readouterr() == ("", "")


def test_request_has_the_time_at_which_it_came() -> None:
    """What a ledger claims is compared with it, so it is taken before anything is answered."""
    clock = FakeClock()
    with MockModel(clock=clock) as model:
        post(model, CHAT, prompt("one"))
        clock.advance(2)
        post(model, CHAT, prompt("two"))
    first, second = (asked.arrived_at for asked in model.requests)
    assert (second - first).total_seconds() == 2
