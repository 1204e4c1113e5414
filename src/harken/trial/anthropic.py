"""Anthropic Messages: what a request holds, and how an answer is written. Pure; see `exchange` for the words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from harken.trial.exchange import (
    EVENT_STREAM,
    PLAIN_JSON,
    ConversationTurn,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ModelTool,
    compact,
    events,
    row,
    table,
    texts,
    word,
)

NAME: Final = "anthropic"
_USAGE: Final[Mapping[str, int]] = {
    "input_tokens": 10,
    "output_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
# Hosts ask for one token to see whether a key works.
_PING_TOKENS: Final = 1


def asked(body: Mapping[str, object]) -> ModelRequest:
    """Return what a request of `POST /v1/messages` asks."""
    tools = tuple(ModelTool(name) for part in row(body.get("tools")) if (name := word(table(part).get("name"))))
    wanted = table(table(body.get("output_config")).get("format")) or table(body.get("output_format"))
    schema = table(wanted.get("schema")) or None
    return ModelRequest(
        protocol=NAME,
        model=word(body.get("model")),
        turns=tuple(_turns(body)),
        tools=tools,
        is_side=not tools or schema is not None or body.get("max_tokens") == _PING_TOKENS,
        is_stream=body.get("stream") is True,
        schema=schema,
        body=body,
    )


def _turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    if body.get("system"):
        yield ConversationTurn("system", texts(body["system"]))
    for message in map(table, row(body.get("messages"))):
        role, content = word(message.get("role")), message.get("content")
        for block in (content,) if isinstance(content, str) else row(content):
            yield _turn(role, block)


def _turn(role: str, block: object) -> ConversationTurn:
    match table(block).get("type"):
        case "tool_result":
            return ConversationTurn("tool", texts(table(block).get("content")))
        case "tool_use":
            return ConversationTurn("call", f"{word(table(block).get('name'))} {compact(table(block).get('input'))}")
        case _:
            return ConversationTurn(role, texts(block))


def answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an answer."""
    blocks = _blocks(say, request.number)
    reason = "tool_use" if say.calls else "end_turn"
    message: dict[str, object] = {
        "id": f"msg_{request.number:06}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    if not request.is_stream:
        return PLAIN_JSON, compact({**message, "content": blocks, "stop_reason": reason}).encode()
    parts: list[tuple[str, object]] = [("message_start", {"type": "message_start", "message": message})]
    for index, block in enumerate(blocks):
        parts.extend(_block_events(index, block))
    end = {"stop_reason": reason, "stop_sequence": None}
    parts.append(("message_delta", {"type": "message_delta", "delta": end, "usage": _USAGE}))
    parts.append(("message_stop", {"type": "message_stop"}))
    return EVENT_STREAM, events(*parts)


def count(request: ModelRequest) -> tuple[str, bytes]:
    """Return the answer to `count_tokens`."""
    return PLAIN_JSON, compact({"input_tokens": len(request.text) // 4 + 1}).encode()


def _blocks(say: ModelAnswer, number: int) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = [{"type": "text", "text": say.words}] if say.words or not say.calls else []
    for index, call in enumerate(say.calls):
        blocks.append(_tool_use(call, f"toolu_{number:06}_{index}"))
    return blocks


def _tool_use(call: ModelCall, name: str) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": call.tool, "input": dict(call.arguments)}


def _block_events(index: int, block: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if block["type"] == "text":
        start: object = {"type": "text", "text": ""}
        delta: object = {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": compact(block["input"])}
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": start}
    yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}
