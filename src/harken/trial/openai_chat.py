"""OpenAI Chat Completions: what a request holds, and how an answer is written. Pure; see `exchange` for the words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from harken.trial.exchange import (
    EVENT_STREAM,
    PLAIN_JSON,
    ConversationTurn,
    ModelAnswer,
    ModelRequest,
    ModelTool,
    compact,
    lines,
    row,
    table,
    texts,
    word,
)

NAME: Final = "openai-chat"
_USAGE: Final[Mapping[str, int]] = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
_END: Final = b"data: [DONE]\n\n"


def asked(body: Mapping[str, object]) -> ModelRequest:
    """Return what a request of `POST /v1/chat/completions` asks."""
    tools = tuple(tool for part in row(body.get("tools")) if (tool := _tool(table(part))).name)
    wanted = table(table(body.get("response_format")).get("json_schema"))
    return ModelRequest(
        protocol=NAME,
        model=word(body.get("model")),
        turns=tuple(_turns(body)),
        tools=tools,
        is_side=not tools,
        is_stream=body.get("stream") is True,
        schema=table(wanted.get("schema")) or None,
        body=body,
    )


def _tool(part: Mapping[str, object]) -> ModelTool:
    if part.get("type") == "custom":
        return ModelTool(word(table(part.get("custom")).get("name")), takes_text=True)
    return ModelTool(word(table(part.get("function")).get("name")))


def _turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    for message in map(table, row(body.get("messages"))):
        role = word(message.get("role"))
        if message.get("content"):
            yield ConversationTurn(role, texts(message["content"]))
        for call in map(table, row(message.get("tool_calls"))):
            function = table(call.get("function"))
            yield ConversationTurn("call", f"{word(function.get('name'))} {word(function.get('arguments'))}")


def answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an answer."""
    message: dict[str, object] = {"role": "assistant", "content": say.words or None}
    if say.calls:
        message["tool_calls"] = _calls(say, request.number)
    reason = "tool_calls" if say.calls else "stop"
    head = {"id": f"chatcmpl-{request.number:06}", "created": 0, "model": request.model}
    if not request.is_stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
        return PLAIN_JSON, compact(whole).encode()
    head["object"] = "chat.completion.chunk"
    chunks = (
        {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**head, "choices": [], "usage": _USAGE},
    )
    return EVENT_STREAM, lines(*chunks) + _END


def _calls(say: ModelAnswer, number: int) -> list[dict[str, object]]:
    return [
        {
            "index": index,
            "id": f"call_{number:06}_{index}",
            "type": "function",
            "function": {"name": call.tool, "arguments": compact(dict(call.arguments))},
        }
        for index, call in enumerate(say.calls)
    ]
