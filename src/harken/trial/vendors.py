"""The protocols of vendors' models: what a request holds, and how an answer is written.

Pure; see `exchange` for the words. They are Anthropic's Messages, Google's `generateContent`, and OpenAI's two, Chat
Completions and Responses. Codex speaks Responses: it groups the tools of an MCP server under a namespace, for some
models names tools in an item of the input only, and wraps all of them in one that takes a program.
"""

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
    lines,
    row,
    table,
    texts,
    word,
)

ANTHROPIC: Final = "anthropic"
_ANTHROPIC_USAGE: Final[Mapping[str, int]] = {
    "input_tokens": 10,
    "output_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
# Hosts ask for one token to see whether a key works.
_PING_TOKENS: Final = 1


def anthropic_asked(body: Mapping[str, object]) -> ModelRequest:
    """Return what a request of `POST /v1/messages` asks."""
    tools = tuple(ModelTool(name) for part in row(body.get("tools")) if (name := word(table(part).get("name"))))
    wanted = table(table(body.get("output_config")).get("format")) or table(body.get("output_format"))
    schema = table(wanted.get("schema")) or None
    return ModelRequest(
        protocol=ANTHROPIC,
        model=word(body.get("model")),
        turns=tuple(_anthropic_turns(body)),
        tools=tools,
        is_side=not tools or schema is not None or body.get("max_tokens") == _PING_TOKENS,
        is_stream=body.get("stream") is True,
        schema=schema,
        body=body,
    )


def _anthropic_turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    if body.get("system"):
        yield ConversationTurn("system", texts(body["system"]))
    for message in map(table, row(body.get("messages"))):
        role, content = word(message.get("role")), message.get("content")
        for block in (content,) if isinstance(content, str) else row(content):
            yield _anthropic_turn(role, block)


def _anthropic_turn(role: str, block: object) -> ConversationTurn:
    match table(block).get("type"):
        case "tool_result":
            return ConversationTurn("tool", texts(table(block).get("content")))
        case "tool_use":
            return ConversationTurn("call", f"{word(table(block).get('name'))} {compact(table(block).get('input'))}")
        case _:
            return ConversationTurn(role, texts(block))


def anthropic_answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an anthropic_answer."""
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
        "usage": _ANTHROPIC_USAGE,
    }
    if not request.is_stream:
        return PLAIN_JSON, compact({**message, "content": blocks, "stop_reason": reason}).encode()
    parts: list[tuple[str, object]] = [("message_start", {"type": "message_start", "message": message})]
    for index, block in enumerate(blocks):
        parts.extend(_block_events(index, block))
    end = {"stop_reason": reason, "stop_sequence": None}
    parts.append(("message_delta", {"type": "message_delta", "delta": end, "usage": _ANTHROPIC_USAGE}))
    parts.append(("message_stop", {"type": "message_stop"}))
    return EVENT_STREAM, events(*parts)


def anthropic_count(request: ModelRequest) -> tuple[str, bytes]:
    """Return the anthropic_answer to `count_tokens`."""
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


GOOGLE: Final = "google"
_GOOGLE_USAGE: Final[Mapping[str, int]] = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
_GOOGLE_ROLES: Final[Mapping[str, str]] = {"model": "assistant", "function": "tool"}


def google_asked(body: Mapping[str, object], model: str = "", *, is_stream: bool = False) -> ModelRequest:
    """Return what a request asks; the model and whether to stream are said by its path."""
    tools = tuple(_google_tools(body))
    wanted = table(body.get("generationConfig"))
    schema = table(wanted.get("responseJsonSchema")) or table(wanted.get("responseSchema")) or None
    return ModelRequest(
        protocol=GOOGLE,
        model=model,
        turns=tuple(_google_turns(body)),
        tools=tools,
        is_side=not tools or schema is not None,
        is_stream=is_stream,
        schema=schema,
        body=body,
    )


def _google_tools(body: Mapping[str, object]) -> Iterator[ModelTool]:
    for group in map(table, row(body.get("tools"))):
        for part in map(table, row(group.get("functionDeclarations"))):
            if name := word(part.get("name")):
                yield ModelTool(name)


def _google_turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    if body.get("systemInstruction"):
        yield ConversationTurn("system", _google_joined(body["systemInstruction"]))
    for content in map(table, row(body.get("contents"))):
        role = word(content.get("role")) or "user"
        for part in map(table, row(content.get("parts"))):
            yield _google_turn(_GOOGLE_ROLES.get(role, role), part)


def _google_turn(role: str, part: Mapping[str, object]) -> ConversationTurn:
    if "functionCall" in part:
        call = table(part["functionCall"])
        return ConversationTurn("call", f"{word(call.get('name'))} {compact(call.get('args'))}")
    if "functionResponse" in part:
        result = table(table(part["functionResponse"]).get("response"))
        return ConversationTurn("tool", "\n".join(texts(value) for value in result.values()))
    return ConversationTurn(role, texts(part))


def _google_joined(instruction: object) -> str:
    return instruction if isinstance(instruction, str) else texts(table(instruction).get("parts"))


def google_answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an google_answer."""
    parts: list[dict[str, object]] = [{"text": say.words}] if say.words or not say.calls else []
    for index, call in enumerate(say.calls):
        name = f"call_{request.number:06}_{index}"
        parts.append({"functionCall": {"id": name, "name": call.tool, "args": dict(call.arguments)}})
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    whole = {"candidates": [candidate], "usageMetadata": _GOOGLE_USAGE, "modelVersion": request.model}
    return (EVENT_STREAM, lines(whole)) if request.is_stream else (PLAIN_JSON, compact(whole).encode())


def google_count(request: ModelRequest) -> tuple[str, bytes]:
    """Return the google_answer to `countTokens`."""
    return PLAIN_JSON, compact({"totalTokens": len(request.text) // 4 + 1}).encode()


CHAT: Final = "openai-chat"
_CHAT_USAGE: Final[Mapping[str, int]] = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
_END: Final = b"data: [DONE]\n\n"
RESPONSES: Final = "openai-responses"
_USAGE: Final[Mapping[str, object]] = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 20,
}
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})


def chat_asked(body: Mapping[str, object]) -> ModelRequest:
    """Return what a request of `POST /v1/chat/completions` asks."""
    tools = tuple(tool for part in row(body.get("tools")) if (tool := _chat_tool(table(part))).name)
    wanted = table(table(body.get("response_format")).get("json_schema"))
    return ModelRequest(
        protocol=CHAT,
        model=word(body.get("model")),
        turns=tuple(_chat_turns(body)),
        tools=tools,
        is_side=not tools,
        is_stream=body.get("stream") is True,
        schema=table(wanted.get("schema")) or None,
        body=body,
    )


def _chat_tool(part: Mapping[str, object]) -> ModelTool:
    if part.get("type") == "custom":
        return ModelTool(word(table(part.get("custom")).get("name")), takes_text=True)
    return ModelTool(word(table(part.get("function")).get("name")))


def _chat_turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    for message in map(table, row(body.get("messages"))):
        role = word(message.get("role"))
        if message.get("content"):
            yield ConversationTurn(role, texts(message["content"]))
        for call in map(table, row(message.get("tool_calls"))):
            function = table(call.get("function"))
            yield ConversationTurn("call", f"{word(function.get('name'))} {word(function.get('arguments'))}")


def chat_answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an answer."""
    message: dict[str, object] = {"role": "assistant", "content": say.words or None}
    if say.calls:
        message["tool_calls"] = _chat_calls(say, request.number)
    reason = "tool_calls" if say.calls else "stop"
    head = {"id": f"chatcmpl-{request.number:06}", "created": 0, "model": request.model}
    if not request.is_stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": _CHAT_USAGE}
        return PLAIN_JSON, compact(whole).encode()
    head["object"] = "chat.completion.chunk"
    chunks = (
        {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**head, "choices": [], "usage": _CHAT_USAGE},
    )
    return EVENT_STREAM, lines(*chunks) + _END


def _chat_calls(say: ModelAnswer, number: int) -> list[dict[str, object]]:
    return [
        {
            "index": index,
            "id": f"call_{number:06}_{index}",
            "type": "function",
            "function": {"name": call.tool, "arguments": compact(dict(call.arguments))},
        }
        for index, call in enumerate(say.calls)
    ]


def responses_asked(body: Mapping[str, object]) -> ModelRequest:
    """Return what a request of `POST /v1/responses` asks."""
    tools = tuple(_tools(body))
    wanted = table(table(body.get("text")).get("format"))
    return ModelRequest(
        protocol=RESPONSES,
        model=word(body.get("model")),
        turns=tuple(_turns(body)),
        tools=tools,
        is_side=not tools,
        is_stream=body.get("stream") is True,
        schema=table(wanted.get("schema")) or None,
        body=body,
    )


def _tools(body: Mapping[str, object]) -> Iterator[ModelTool]:
    yield from _listed(body.get("tools"))
    for item in map(table, row(body.get("input"))):
        if item.get("type") == "additional_tools":
            yield from _listed(item.get("tools"))


def _listed(tools: object, namespace: str = "") -> Iterator[ModelTool]:
    for part in map(table, row(tools)):
        name = word(part.get("name"))
        if part.get("type") == "namespace" and not namespace:
            yield from _listed(part.get("tools"), name)
        elif name:
            yield ModelTool(name, namespace=namespace, takes_text=part.get("type") == "custom")


def _turns(body: Mapping[str, object]) -> Iterator[ConversationTurn]:
    if body.get("instructions"):
        yield ConversationTurn("system", texts(body["instructions"]))
    given = body.get("input")
    if isinstance(given, str):
        yield ConversationTurn("user", given)
        return
    for item in map(table, row(given)):
        kind = word(item.get("type"))
        if kind in _CALLS:
            arguments = item.get("arguments", item.get("input", item.get("action")))
            yield ConversationTurn("call", f"{word(item.get('name'))} {texts(arguments)}")
        elif kind.endswith("_output"):
            yield ConversationTurn("tool", texts(item.get("output", item.get("tools"))))
        elif item.get("content"):
            yield from (ConversationTurn(word(item.get("role")), texts(part)) for part in _parts(item["content"]))


def _parts(content: object) -> tuple[object, ...]:
    return tuple(row(content)) or (content,)


def responses_answer(say: ModelAnswer, request: ModelRequest) -> tuple[str, bytes]:
    """Return the content type and the bytes of an answer."""
    items = list(_items(say, request.number))
    head: dict[str, object] = {
        "id": f"resp_{request.number:06}",
        "object": "response",
        "created_at": 0,
        "model": request.model,
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    whole = {**head, "status": "completed", "output": items, "usage": _USAGE}
    if not request.is_stream:
        return PLAIN_JSON, compact(whole).encode()
    parts: list[tuple[str, dict[str, object]]] = [("response.created", {"response": head})]
    for index, item in enumerate(items):
        parts.extend(_item_events(index, item))
    parts.append(("response.completed", {"response": whole}))
    numbered = [(name, {"type": name, "sequence_number": at, **data}) for at, (name, data) in enumerate(parts)]
    return EVENT_STREAM, events(*numbered)


def _items(say: ModelAnswer, number: int) -> Iterator[dict[str, object]]:
    if say.words or not say.calls:
        part = {"type": "output_text", "text": say.words, "annotations": []}
        name = f"msg_{number:06}"
        yield {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [part]}
    for index, call in enumerate(say.calls):
        yield _call(call, f"{number:06}_{index}")


def _call(call: ModelCall, name: str) -> dict[str, object]:
    item: dict[str, object] = {"call_id": f"call_{name}", "name": call.tool, "status": "completed"}
    if call.namespace:
        item["namespace"] = call.namespace
    if call.takes_text:
        return {"type": "custom_tool_call", "id": f"ctc_{name}", **item, "input": texts(call.arguments.get("input"))}
    return {"type": "function_call", "id": f"fc_{name}", **item, "arguments": compact(dict(call.arguments))}


def _item_events(index: int, item: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    at: dict[str, object] = {"output_index": index}
    if item["type"] != "message":
        yield "response.output_item.added", {**at, "item": {**item, "status": "in_progress"}}
        yield "response.output_item.done", {**at, "item": item}
        return
    part = table(row(item["content"])[0])
    inner = {**at, "item_id": item["id"], "content_index": 0}
    yield "response.output_item.added", {**at, "item": {**item, "status": "in_progress", "content": []}}
    yield "response.content_part.added", {**inner, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**inner, "delta": part["text"]}
    yield "response.output_text.done", {**inner, "text": part["text"]}
    yield "response.content_part.done", {**inner, "part": part}
    yield "response.output_item.done", {**at, "item": item}
