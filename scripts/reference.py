"""Writes `docs/reference/` from the code: what is declared, joined with the prose of `docs/reference/words.toml`.

Run as `python scripts/reference.py`; with `--check` it writes nothing and fails when a page differs from what is
there. Examples come from `scripts/reference_examples.py`, which really runs what they show. It explains nothing by
itself: what the code declares and nobody put into words is an error.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harken import errors, render
from harken.cli.invocation import INTERRUPTED, PIPE_CLOSED
from harken.cli.verbs import COMMANDS, harken
from harken.config.settings import SCALARS, TABLES, Project, Setting
from harken.daemon.metrics import FAMILIES
from harken.errors import HarkenError, Uncertain
from harken.hosts.host import GENERIC
from harken.hosts.registry import hook_host, host_names, hosts
from harken.ingest.policy import ApprovalRule, AttentionRule, Route
from harken.rules.load import json_schema
from harken.sessions.turns import FRAME_CHARS, OPENING_CHARS
from harken.surfaces.mcp.server import INBOX_URI, INSTRUCTIONS, LISTENING
from harken.surfaces.web.guard import MAX_BODY
from harken.verbs.table import TOOLS, VERBS
from harken.verbs.verb import AgentTool
from scripts.reference_examples import ROOT, Examples, run_everything

FOLDER: Final = ROOT / "docs" / "reference"
DIFFERENCE_LINES: Final = 40
GENERATED: Final = "<!-- Written by scripts/reference.py from the code. Do not edit. -->\n\n"

Json: TypeAlias = Any
"""Whatever the JSON says: pages show it."""


class MissingWords(Exception):
    """The code declares something that `words.toml` does not explain."""


@dataclass(frozen=True, slots=True)
class Words:
    """The prose, by its place in the file."""

    tree: Mapping[str, Json]

    def of(self, *path: str) -> str:
        """Return what is said at a place."""
        found: Json = self.tree
        for part in path:
            if not isinstance(found, dict) or part not in found:
                raise MissingWords(f"docs/reference/words.toml explains no {'.'.join(path)}")
            found = found[part]
        return str(found)

    def find(self, *path: str) -> str:
        """Return what is said at a place, empty when nothing is."""
        try:
            return self.of(*path)
        except MissingWords:
            return ""


def fenced(text: str, language: str = "") -> str:
    """Return a code block."""
    return f"```{language}\n{text.rstrip()}\n```\n\n"


def shown(value: Json) -> str:
    """Return a JSON example; a message inside another document is cut to what identifies it."""
    return fenced(json.dumps(_shortened(value, is_inside=False), indent=2, ensure_ascii=False), "json")


def _shortened(value: Json, *, is_inside: bool = True) -> Json:
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if not isinstance(value, dict):
        return value
    if is_inside and "content_text_sanitized" in value:
        kept = ("id", "mailbox", "seq", "from", "content_text_sanitized", "delivery_id", "repeat", "treat_as")
        rest = {"…": "the other fields of a message"}
        return {key: value[key] for key in kept if key in value} | rest
    return {key: _shortened(item) for key, item in value.items()}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines) + "\n"


def code(text: object) -> str:
    """Return a text as inline code."""
    return f"`{text}`"


def anchor(title: str) -> str:
    """Return the anchor of a heading, as renderers of Markdown make it."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def explained(names: Sequence[str], words: Words, *path: str) -> str:
    """Return the table that explains the fields of an object."""
    return table(("field", "meaning"), [(code(name), words.of(*path, name)) for name in names])


def schema_rows(struct: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    """Return a row per argument: its name, type, default and meaning."""
    _, parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    schema = parts[struct.__name__]
    rows: list[tuple[str, ...]] = []
    for name, about in schema.get("properties", {}).items():
        kinds = [item["type"] for item in about["anyOf"]] if "anyOf" in about else [about["type"]]
        kind = " or ".join("list of texts" if kind == "array" else kind for kind in kinds)
        default = "required" if name in schema.get("required", ()) else code(json.dumps(about["default"]))
        rows.append((code(name), kind, default, about.get("description", "")))
    return rows


def arguments_table(struct: type[msgspec.Struct]) -> str:
    """Return the arguments of a verb or tool."""
    rows = schema_rows(struct)
    return table(("argument", "type", "default", "meaning"), rows) if rows else "It has no arguments.\n\n"


# -- the pages -------------------------------------------------------------------------------------------------------


def cli_page(words: Words) -> Iterator[str]:
    """Every command, with its arguments, options and exit codes."""
    yield "# Command line\n\n"
    yield (
        "Every command takes `--json` and `--home DIR`, before or after its name. Results go to stdout, remarks and "
        "errors to stderr. An error is one sentence and one hint. Colours are used on a terminal only, and not when "
        "`NO_COLOR` is set. A command that needs the daemon starts it; `status`, `down` and `version` do not.\n\n"
    )
    for title, section in COMMANDS.items():
        yield f"## {title}\n\n"
        for name in section:
            command = harken.get_command(click.Context(harken), name)
            if command is not None:
                yield from command_section(command, f"harken {name}")
    yield "## Exit codes\n\n"
    needy = "`doctor`, `probe`, `connect`, `disconnect`, `uninstall`: something needs fixing."
    fault = f"{needy} Else: {words.of('errors', 'HarkenError', 'next')}"
    codes = [("0", "Done. Also when there was nothing to show."), ("1", fault)]
    ending = [kind for kind in error_kinds()[1:] if kind is not Uncertain]  # no command ends with that
    codes += [(str(kind.exit_code), words.of("errors", kind.__name__, "next")) for kind in ending]
    codes += [(str(INTERRUPTED), "Ctrl-C."), (str(PIPE_CLOSED), "Whoever read the output went away.")]
    yield table(("code", "what it means, or what to do"), codes)


def command_section(command: click.Command, path: str) -> Iterator[str]:
    """One command, and those below it."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield from one_command(command, path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from command_section(below, f"{path} {name}")


def one_command(command: click.Command, path: str) -> Iterator[str]:
    """One command by itself."""
    yield f"### `{path}`\n\n"
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    yield fenced(f"{path} {usage}", "sh")
    yield inspect.cleandoc(command.help or "") + "\n\n"
    options = [option for option in command.params if isinstance(option, click.Option) and option.name not in SHARED]
    if options:
        yield table(("option", "default", "meaning"), [option_row(option) for option in options])
    verb = path.removeprefix("harken ")
    if verb not in command_paths():
        verb = verb.rpartition(" ")[0]  # what is below a verb gives the same document
    yield f"With `--json`: [{verb}](json.md#{anchor(verb)}).\n\n"


SHARED: Final = ("home", "as_json")


def option_row(option: click.Option) -> tuple[str, str, str]:
    """Return an option as a row."""
    names = ", ".join(code(name) for name in option.opts)
    if not option.is_flag:
        kinds = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.type.name.upper()
        names += f" {code(option.metavar or kinds)}"
    default = code(option.default) if isinstance(option.default, str | int | float) and option.show_default else ""
    variable = f" Also from `{option.envvar}`." if isinstance(option.envvar, str) else ""
    return names, default, (option.help or "") + variable


def tools_page(words: Words, found: Examples) -> Iterator[str]:
    """Every MCP tool, the resource and the notifications."""
    yield "# MCP tools\n\n"
    yield (
        "What an agent sees of Harken. The first content block of every result is exactly the JSON shown here. A "
        f"second block follows while more waits: “{render.still_waiting(2)}” Every tool has `_meta` with "
        "`anthropic/alwaysLoad`, and `readOnlyHint` where it only looks. A result that shows messages says in "
        "`treat_as` whose word each is; see [trust](../explanation/trust.md).\n\n"
        "A result has no more bytes than its host shows its model. A message that does not fit has `truncated`, its "
        "text is the first words of the whole one, which has `length` characters, and its `meta` is empty. It has no "
        "`delivery_id`, because it was not handed out: see [how long](../explanation/delivery.md#how-long).\n\n"
        f"The server's instructions to the agent are:\n\n> {INSTRUCTIONS}\n\n"
        "A client that is not one of the hosts that `harken connect` knows has no hooks of ours. To it they go on, and "
        "`wait_for_inbound_message` says the same; see [other clients](../howto/other-clients.md):\n\n"
        f"> {LISTENING}\n\n"
    )
    yield from sizes_section()
    for tool in TOOLS:
        yield from tool_section(words, tool, *found.tools[tool.name])
    yield "## Errors\n\nA call that fails has `isError` and this JSON; the codes are in [errors](errors.md).\n\n"
    yield shown(found.failed_tool)
    yield f"## Resource `{INBOX_URI}`\n\nHow much waits, and the headers of the newest messages. No texts.\n\n"
    yield shown(found.resource)
    yield (
        "A client that subscribes gets `notifications/resources/updated` when the inbox grows. One that speaks the "
        "2026-07-28 protocol uses `subscriptions/listen` instead.\n\n## Log ping\n\n"
        "`notifications/message` with level `info` and logger `harken.inbox`, when a message arrives that may push. "
        "A client turns it off with `logging/setLevel`. The data:\n\n"
    )
    yield shown(found.ping)


def sizes_section() -> Iterator[str]:
    """How much each host is given at once: in a result, and by what hands messages over."""
    yield (
        "## Sizes\n\nWhat a result may have, whichever tool gives it; what a command prints in an agent's shell, too. "
        "And about how long a message may be that a hook or a wake hands over whole, with nothing beside it, in "
        "UTF-16 code units. What is longer is announced.\n\n"
    )
    rows: list[tuple[str, ...]] = []
    for host in hosts().values():
        told = hook_host(host.name).most_chars
        short = {moment: most for moment, most in told.items() if most != max(told.values())}
        apart = [f"{_longest_told(most)} by `hook: {moment.value}`" for moment, most in short.items()]
        channel = host.channel() if host.channel else None
        apart += [f"{_longest_told(channel.most_chars)} by `{channel.surface}`"] if channel else []
        longest = "; ".join([f"{_longest_told(max(told.values()))} characters", *apart])
        rows.append((host.title, f"{host.result_bytes:,} bytes", longest))
    rows.append(("any other client", f"{GENERIC.result_bytes:,} bytes", "nothing is handed to it"))
    yield table(("host", "a result", "a message that is handed over"), rows)


def _longest_told(most_chars: int) -> str:
    return f"{(most_chars - OPENING_CHARS - FRAME_CHARS) // 100 * 100:,}"


def tool_section(words: Words, tool: AgentTool, arguments: Json, result: Json) -> Iterator[str]:
    """One tool."""
    yield f"## `{tool.name}`\n\n{tool.description}\n\n"
    yield f"To a client without hooks it says besides: “{tool.without_hooks}”\n\n" if tool.without_hooks else ""
    yield "It only looks.\n\n" if tool.is_read_only else ""
    yield arguments_table(tool.arguments)
    yield f"Called with `{json.dumps(arguments)}`, for example:\n\n"
    is_first = tool.name == "inbox_pull"
    full = fenced(json.dumps(result, indent=2, ensure_ascii=False), "json")
    yield full if is_first else shown(result)
    yield explained(list(result), words, "tools", tool.name) if words.find("tools", tool.name) else ""
    yield "<details><summary>Input schema</summary>\n\n"
    yield fenced(json.dumps(tool.input_schema(), indent=2), "json") + "</details>\n\n"


def http_page(found: Examples) -> Iterator[str]:
    """Every verb over HTTP."""
    yield "# HTTP API\n\n"
    yield (
        "The daemon serves HTTP on a loopback address, which `harken status` shows. It is for programs of the same "
        "person on the same machine; how to use it is in [use the HTTP API](../howto/use-the-http-api.md).\n\n"
        '- `GET /healthz` answers `{"status": "ok", "version": …}` and needs no token.\n'
        '- `GET /readyz` answers 200 and `{"status": "ready"}` when something can be stored and the socket answers, '
        'else 503 and `{"status": "not ready", "reason": …}` with `store`, `socket` or `starting`. No token.\n'
        "- `GET /metrics` gives the [metrics](metrics.md). It needs the token.\n"
        "- `POST /api/<verb>` does what the verb says. The body is a JSON object with its arguments; no body means "
        f"none. It has at most {MAX_BODY} bytes. The answer is JSON.\n"
        "- `Authorization: Bearer TOKEN` is needed; the token is the content of the file `token` in the home.\n"
        "- `Host` must be the address itself, and `Origin`, if sent, too.\n"
        "- Cookies are not looked at. The page proves with each request that it holds a key, which stays in its "
        "browser.\n"
        "- On Linux, programs of other accounts are refused with 403, unless `http.allow_remote` is set.\n"
        "- Whoever has the token is the owner.\n\n## Status codes\n\n"
    )
    rows = [("200", "Done."), ("401", "No token was sent."), ("403", "The token, `Host` or `Origin` is wrong.")]
    rows += [("413", "The body is too large.")]
    rows += [(str(kind.http_status), f"{code(kind.code)}: see [errors](errors.md).") for kind in error_kinds()]
    yield table(("status", "meaning"), sorted(rows))
    yield 'An error answers with `{"error": {"code": …, "message": …, "hint": …}}`.\n\n'
    for verb in VERBS:
        yield f"## `POST /api/{verb.name}`\n\n{inspect.cleandoc(verb.arguments.__doc__ or '')}\n\n"
        yield arguments_table(verb.arguments)
        yield f"A body, for example, and [its result](json.md#{anchor(verb.name)}):\n\n"
        yield fenced(json.dumps(found.verbs[verb.name][0], ensure_ascii=False), "json")


def json_page(words: Words, found: Examples) -> Iterator[str]:
    """Every JSON document that `--json`, the HTTP API and the socket give."""
    yield "# JSON\n\n"
    yield (
        "What `--json` prints and the HTTP API answers; both give the same documents. Fields are added in later "
        "versions and not renamed or removed without an entry in the changelog: ignore what you do not know. Times "
        "are ISO 8601 in UTC. Ids, times and processes in the examples are made up, the rest is what a real run "
        "answered. `harken export` prints one message per line, and `harken journal --follow` one event per line.\n\n"
    )
    yield "## Shapes\n\n"
    for name, example in found.shapes.items():
        yield f"### Shape: {name}\n\n{words.of('shapes', name, 'about')}\n\n"
        yield explained(list(example), words, "shapes", name) + shown(example)
    yield "## Results\n\n"
    for name in (verb.name for verb in VERBS):
        yield f"### {name}\n\n" + result_table(name, found, words)
        if name == "send":
            yield table(("outlook", "meaning"), [(code(k), v) for k, v in words.tree["outlooks"].items()])
        yield shown(found.verbs[name][1])
    yield "## Commands that ask no verb\n\n"
    for path in command_paths():
        if path not in {verb.name for verb in VERBS}:
            yield f"### {path}\n\n{words.of('commands', path, 'about')}\n\n"
            yield shown(found.commands[path]) if path in found.commands else ""
    yield '## Errors\n\nOn the command line an error goes to stderr as `{"error": …}`; see [errors](errors.md).\n'


def result_table(name: str, found: Examples, words: Words) -> str:
    """Return what explains the fields of a verb's result; of one that is a shape, what it has beyond that."""
    fields_of_it = list(found.verbs[name][1])
    shape = words.find("verbs", name, "is")
    if not shape:
        return explained(fields_of_it, words, "verbs", name)
    more = [field for field in fields_of_it if field not in found.shapes[shape]]
    article = "An" if shape[0] in "aeiou" else "A"
    return f"{article} [{shape}](#shape-{shape}){', and:' if more else '.'}\n\n" + (
        explained(more, words, "verbs", name) if more else ""
    )


def command_paths() -> Iterator[str]:
    """Yield every command as it is typed, without `harken`."""
    context = click.Context(harken)
    for name in harken.list_commands(context):
        command = harken.get_command(context, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)


def config_page(words: Words) -> Iterator[str]:
    """Every setting."""
    yield "# Configuration\n\n"
    yield (
        "Settings are in `config.toml` in the home (`--home`, else `HARKEN_HOME`, else `~/.harken`). All are optional. "
        "An environment variable comes before the file. Unknown keys are errors with a suggestion. "
        "`harken config show --origin` shows each value and where it came from.\n\n"
        "A daemon in the background is started with a small environment of its own: for it, use the file. Restart it "
        "to apply a change: `harken down`, then `harken up`.\n\n"
        "A secret is never written into the file, only a reference to it: `env:NAME` (the environment, else "
        "`NAME=value` in the file `env` of the home), `file:PATH` (readable by you only), `keyring:SERVICE/NAME`.\n\n"
        "Variables that are not settings: `HARKEN_HOME` names the home, `HARKEN_CONSUMER` the consumer that "
        "`harken mcp` reads as, `HARKEN_TASK` the task that an agent is started for.\n\n## Settings\n\n"
    )
    for setting in SCALARS:
        yield f"### `{setting.name}`\n\n{setting.help}{note_on(setting, words)}\n\n"
        yield table(("accepts", "default", "environment"), [scalar_row(setting)])
        yield fenced(f"[{setting.group}]\n{setting.example}", "toml")
    yield "## Tables\n\nOnly the file can hold these.\n\n"
    columns: Mapping[str, type] = {
        "routes": Route,
        "attention_rules": AttentionRule,
        "approvals": ApprovalRule,
        "projects": Project,
    }
    for setting in TABLES:
        yield f"### `{setting.name}`\n\n{setting.help}{note_on(setting, words)}\n\n"
        if setting.name in columns:
            keys = [item.name for item in fields(columns[setting.name])]
            yield table(("key", "meaning"), [(code(key), words.of("tables", key)) for key in keys])
        yield fenced(setting.example, "toml")


def note_on(setting: Setting, words: Words) -> str:
    """Return what has to be added to a setting's own help."""
    note = words.find("settings", setting.name, "note")
    return f" {note}" if note else ""


def scalar_row(setting: Setting) -> tuple[str, str, str]:
    """Return what a setting accepts, its default and its variable."""
    if setting.type is None:
        raise TypeError(setting.name)
    default = json.dumps(setting.type.show(setting.default))
    return setting.type.wanted.replace("\n", " "), code(default), code(setting.variable)


def error_kinds() -> list[type[HarkenError]]:
    """Return the classes of errors, the base first."""
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HarkenError)]
    return sorted(found, key=lambda kind: kind.exit_code)


def errors_page(words: Words) -> Iterator[str]:
    """Every class of error."""
    yield "# Errors\n\n"
    yield (
        "Errors are divided by what the caller does next. Each has a stable code, one sentence and one hint, the same "
        "on every surface: the command line exits with the exit code, the HTTP API answers with the status, an MCP "
        "tool answers with `isError`.\n\n"
    )
    rows = [
        (code(kind.code), str(kind.exit_code), str(kind.http_status), words.of("errors", kind.__name__, "next"))
        for kind in error_kinds()
    ]
    yield table(("code", "exit code", "HTTP status", "what to do"), rows)
    for kind in error_kinds():
        about = words.find("errors", kind.__name__, "about") or inspect.cleandoc(kind.__doc__ or "")
        yield f"## `{kind.code}`\n\n{about} In the code: `{kind.__name__}`.\n\n"
        yield shown(kind("A sentence that says what is wrong.", "A hint that says what to do.").as_dict())
    yield (
        "## JSON-RPC errors of `harken mcp`\n\n"
        "A line that is not JSON is answered with -32700, one that is not a JSON-RPC message with -32600. When no "
        "daemon can be had, each request is answered with -32000 and the reason. Errors inside a tool are results "
        "with `isError`, so that the model reads them.\n"
    )


def journal_page(words: Words, found: Examples) -> Iterator[str]:
    """Every kind of event."""
    yield "# Journal\n\n"
    yield (
        "`journal/YYYY-MM-DD.jsonl` in the home has one line per event, in UTC days. A line is written after the "
        "commit it belongs to and before anyone is told. `n` counts events without gaps, `at` is the time, `kind` is "
        "one of those below, `store` says which store the line is of: its id and its epoch, which a restore or a "
        "recovery raises. The files are yours alone (0600). The daemon reads back where they end, and does not start "
        "over a database that is older. Lines that are missing after a crash are written at the next start. The "
        "store keeps the newest 100,000 events for `harken journal`. The files stay until you remove them; "
        "`harken replay` reads them.\n\n"
    )
    for kind, line in found.lines.items():
        yield f"## `{kind}`\n\n{words.of('kinds', kind, 'about')}\n\n"
        yield explained(line.names, words, "kinds", kind) + fenced(line.text, "json")


def metrics_page() -> Iterator[str]:
    """Every number that can be scraped."""
    yield "# Metrics\n\n"
    yield (
        "`GET /metrics` on the daemon's address gives these in the text format of Prometheus, version 0.0.4; it needs "
        "the token. How to scrape it is in [watch it with Prometheus](../howto/metrics.md). Counters begin at zero "
        "when the daemon starts. Labels have bounded values: no sender, channel or mailbox is among them, and what is "
        "not known is `other`.\n\n"
    )
    rows = [(code(each.name), each.kind.value, ", ".join(map(code, each.labels)), each.help) for each in FAMILIES]
    yield table(("name", "type", "labels", "meaning"), rows)


def pages(words: Words, found: Examples) -> dict[str, str]:
    """Return every page by its file name."""
    written = {
        "cli.md": cli_page(words),
        "tools.md": tools_page(words, found),
        "http.md": http_page(found),
        "json.md": json_page(words, found),
        "config.md": config_page(words),
        "errors.md": errors_page(words),
        "journal.md": journal_page(words, found),
        "metrics.md": metrics_page(),
    }
    schema = {"triggers.schema.json": json.dumps(json_schema(host_names()), indent=2) + "\n"}
    return {name: GENERATED + "".join(parts).rstrip() + "\n" for name, parts in written.items()} | schema


def differences(folder: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return how each page differs from what it should be, by name; pages that are right are left out."""
    found = {}
    for name, text in wanted.items():
        path = folder / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before != text:
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), name, f"{name}, as it should be", n=1)
            found[name] = "\n".join([line.rstrip("\n") for line in lines][:DIFFERENCE_LINES])
    return found


def load_words() -> Words:
    """Return the prose."""
    return Words(tomllib.loads((FOLDER / "words.toml").read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` show how they differ; return 1 if they do."""
    wanted = pages(load_words(), run_everything())
    stale = differences(FOLDER, wanted)
    if "--check" not in arguments:
        for name in stale:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        sys.stdout.write(f"reference: {len(stale)} pages written\n")
        return 0
    for text in stale.values():
        sys.stdout.write(text + "\n")
    sys.stdout.write(
        f"reference: {len(stale)} pages differ; python scripts/reference.py writes them\n" if stale else ""
    )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
