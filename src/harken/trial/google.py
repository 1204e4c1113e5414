"""Google: what a `generateContent` request holds, and how an answer is written. Pure; see `exchange` for the words."""

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

NAME: Final = "google"
_USAGE: Final[Mapping[str, int]] = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
_ROLES: Final[Mapping[str, str]] = {"model": "assistant", "function": "tool"}


def asked(body: Mapping[str, object], model: str = "", *, is_stream: bool = False) -> ModelRequest:
    """Return what a request asks; the model and whether to stream are said by its path."""
    tools = tuple(_tools(body))
    wanted = table(body.get("generationConfig"))
    schema = table(wanted.get("responseJsonSchema")) or table(wanted.get("responseSchema")) or None
    return ModelRequest(
        protocol=NAME,
        model=model,
        turns=tuple(_turns(body)),
        tools=tools,
        is_side=not tools or schema is not None,
        is_stream=is_stream,
        schema=schema,
        body=body,
    )


def _tools(body: Mapping[str, object]) -> Iterator[ModelTool]:
    for group in map(table, row(body.get("tools"))):
        for part in map(table, row(group.get("functionDeclarations"))):
            if name := word(part.get("name")):
                yield ModelTool(name)


def _turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    if body.get("systemInstruction"):
        yield ConversationTurn("system", _joined(body["systemInstruction"]))
    for content in map(table, row(body.get("contents"))):
        role = word(content.get("role")) or "user"
        for part in map(table, row(content.get("parts"))):
            yield _turn(_ROLES.get(role, role), part)


def _turn(role: str, part: Mapping[str, object]) -> ConversationTurn:
    if "functionCall" in part:
        call = table(part["functionCall"])
        return ConversationTurn("call", f"{word(call.get('name'))} {compact(call.get('args'))}")
    if "functionResponse" in part:
        result = table(table(part["functionResponse"]).get("response"))
        return ConversationTurn("tool", "\n".join(texts(value) for value in result.values()))
    return ConversationTurn(role, texts(part))


def _joined(instruction: object) -> str:
    return instruction if isinstance(instruction, str) else texts(table(instruction).get("parts"))


def answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an answer."""
    parts: list[dict[str, object]] = [{"text": say.words}] if say.words or not say.calls else []
    for index, call in enumerate(say.calls):
        name = f"call_{request.number:06}_{index}"
        parts.append({"functionCall": {"id": name, "name": call.tool, "args": dict(call.arguments)}})
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    whole = {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": request.model}
    return (EVENT_STREAM, lines(whole)) if request.is_stream else (PLAIN_JSON, compact(whole).encode())


def count(request: ModelRequest) -> tuple[str, bytes]:
    """Return the answer to `countTokens`."""
    return PLAIN_JSON, compact({"totalTokens": len(request.text) // 4 + 1}).encode()
