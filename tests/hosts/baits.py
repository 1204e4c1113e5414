"""What lies around a run of each host and must not get into it: hooks, servers, instructions, skills, commands.

Some is the person's and some the folder's. Each leaves a mark where it is followed, so that a leak is seen. This module
tests nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.runs.sandbox import Sandbox
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer
from tests.hosts import toolserver
from tests.hosts.sandboxes import ANSWER, Ran, ask
from tests.hosts.stage import Stage
from tests.hosts.toolserver import marks

THEIRS: Final = "WORDS-THAT-LIE-AROUND"
THEIR_MODELS: Final = MappingProxyType({"gemini-cli": "gemini-2.5-flash", "qwen-code": "their-model"})
_SKILL: Final = f"---\nname: own\ndescription: {THEIRS}\n---\n{THEIRS}\n"
_PLUGIN: Final = (
    'import {{ writeFileSync }} from "node:fs"\nwriteFileSync("{}", "")\nexport const Own = async () => ({{}})\n'
)
_MAX_TURNS: Final = 60
_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
_GEMINI_EVENTS: Final = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")


def write(path: Path, content: object) -> Path:
    """Write a text, or anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def changed(path: Path, more: Mapping[str, object]) -> None:
    """Put more into a file of JSON."""
    write(path, {**json.loads(path.read_text(encoding="utf-8")), **more})


def trace(stage: Stage) -> Path:
    """Return the file that is there when something was followed."""
    return stage.folder / "followed"


def assert_nothing_leaked(stage: Stage) -> None:
    """Assert that nothing was followed, no server but the rule's was called, and the model was told none of it."""
    assert not trace(stage).exists()
    assert marks(stage.folder, "person") | marks(stage.folder, "folder") == set()
    assert THEIRS not in json.dumps([dict(asked.body) for asked in stage.model.requests])
    chosen = THEIR_MODELS.get(stage.host.name)
    assert chosen is None or {asked.model for asked in stage.model.conversation} == {chosen}


def run(sandbox: Sandbox, stage: Stage, tools: Sequence[str], *says: ModelAnswer, prompt: str = "do it") -> Ran:
    """Run the host with some tools, while the model says some things in order; it must end well, and nothing leak."""
    ran = ask(sandbox, stage, tools, *says, prompt=prompt, max_turns=_MAX_TURNS)
    assert (ran.exit_code, ran.answer) == (0, ANSWER), ran.stderr
    assert_nothing_leaked(stage)
    return ran


def offered(stage: Stage) -> set[str]:
    """Return the tools that the model was offered."""
    return set(stage.model.conversation[0].tool_names)


def _hooks(stage: Stage, events: Sequence[str] = _EVENTS) -> Json:
    command = {"type": "command", "command": f"touch {trace(stage)}"}
    return {event: [{"hooks": [command]}] for event in events}


def _server(stage: Stage, whose: str) -> Json:
    return {"command": sys.executable, "args": ["-I", toolserver.__file__, str(stage.folder), whose]}


def _around_claude_code(stage: Stage) -> None:
    changed(stage.user / ".claude.json", {"mcpServers": {"person": _server(stage, "person")}})
    write(stage.project / ".mcp.json", {"mcpServers": {"folder": _server(stage, "folder")}})
    for folder in (stage.user / ".claude", stage.project / ".claude"):
        write(folder / "settings.json", {"hooks": _hooks(stage)})
        write(folder / "skills" / "own" / "SKILL.md", _SKILL)
        write(folder / "commands" / "own.md", THEIRS)
    write(stage.user / ".claude" / "CLAUDE.md", THEIRS)
    write(stage.project / "CLAUDE.md", THEIRS)


def _around_copilot(stage: Stage) -> None:
    servers = {name: {"type": "local", **_server(stage, name), "tools": ["*"]} for name in ("person", "folder")}
    write(stage.user / ".copilot" / "mcp-config.json", {"mcpServers": {"person": servers["person"]}})
    write(stage.project / ".mcp.json", {"mcpServers": {"folder": servers["folder"]}})
    hook = {"type": "command", "bash": f"touch {trace(stage)}"}
    hooks = {name: [hook] for name in ("sessionStart", "userPromptSubmitted", "preToolUse", "agentStop")}
    for folder in (stage.user / ".copilot", stage.project / ".github"):
        write(folder / "hooks" / "h.json", {"version": 1, "hooks": hooks})
        write(folder / "copilot-instructions.md", THEIRS)
        write(folder / "skills" / "own" / "SKILL.md", _SKILL)
    write(stage.project / "AGENTS.md", THEIRS)


def _around_codex(stage: Stage) -> None:
    home, here = stage.user / ".codex", stage.project / ".codex"
    config = (home / "config.toml").read_text(encoding="utf-8")
    for folder, whose, before in ((home, "person", config), (here, "folder", "")):
        server = _server(stage, whose)
        table = (
            f"\n[mcp_servers.{whose}]\ncommand = {json.dumps(server['command'])}\nargs = {json.dumps(server['args'])}\n"
        )
        # Told of every end of a turn, and in need of no trust.
        write(folder / "config.toml", f'notify = ["touch", "{trace(stage)}"]\n{before}{table}')
        write(folder / "hooks.json", {"hooks": _hooks(stage)})
    for folder in (stage.user, stage.project):
        write(folder / ".agents/skills/own/SKILL.md", _SKILL)
    write(home / "AGENTS.md", THEIRS)
    write(stage.project / "AGENTS.md", THEIRS)


def _around_gemini(stage: Stage) -> None:
    home, here = stage.user / ".gemini", stage.project / ".gemini"

    def baits(whose: str) -> Json:
        more = {"tools": {"discoveryCommand": f"touch {trace(stage)}"}}
        return {
            "hooks": _hooks(stage, _GEMINI_EVENTS),
            "mcpServers": {whose: {**_server(stage, whose), "trust": True}},
            **more,
        }

    changed(home / "settings.json", {"model": {"name": THEIR_MODELS["gemini-cli"]}, **baits("person")})
    write(here / "settings.json", baits("folder"))
    for folder in (home, stage.folder):
        write(folder / "GEMINI.md", THEIRS)
    write(home / "policies" / "all.toml", '[[rule]]\ntoolName = "*"\ndecision = "allow"\npriority = 999\n')
    write(stage.project / ".env", "GEMINI_API_KEY=other\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9\n")
    write(here / "commands" / "own.toml", f'prompt = "{THEIRS}"\n')


def _around_opencode(stage: Stage) -> None:
    home, here = stage.user / ".config" / "opencode", stage.project / ".opencode"
    for file, whose in ((home / "opencode.json", "person"), (stage.project / "opencode.json", "folder")):
        server = _server(stage, whose)
        entry = {"type": "local", "command": [server["command"], *server["args"]]}
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        write(file, {**before, "mcp": {whose: entry}, "instructions": ["../outside.txt"]})
    write(home / "plugins" / "own.js", _PLUGIN.format(trace(stage)))
    write(here / "tools" / "own.js", _PLUGIN.format(trace(stage)))
    write(here / "agent" / "harken.md", f"---\nmode: primary\npermission:\n  bash: allow\n---\n{THEIRS}")
    write(here / "command" / "own.md", f"{THEIRS} !`touch {trace(stage)}`")
    write(stage.project / ".claude" / "skills" / "own" / "SKILL.md", _SKILL)
    for file in (home / "AGENTS.md", stage.user / ".claude" / "CLAUDE.md", stage.project / "AGENTS.md"):
        write(file, THEIRS)


def _around_qwen(stage: Stage) -> None:
    home, here = stage.user / ".qwen", stage.project / ".qwen"

    def baits(whose: str) -> Json:
        allowed = {"permissions": {"allow": ["read_file", "edit", "run_shell_command"]}}
        servers = {whose: {**_server(stage, whose), "trust": True}}
        # Qwen writes an older file anew wherever it starts, before it looks at its arguments.
        more = {"$version": 4, **allowed, "tools": {"approvalMode": "yolo"}}
        return {"hooks": _hooks(stage), "mcpServers": servers, **more}

    changed(home / "settings.json", {**baits("person"), "model": {"name": THEIR_MODELS["qwen-code"]}})
    write(here / "settings.json", baits("folder"))
    for folder in (home, stage.folder, stage.project):
        for name in ("QWEN.md", "AGENTS.md"):
            write(folder / name, THEIRS)
    write(stage.project / ".env", "OPENAI_BASE_URL=http://127.0.0.1:9/v1\nOPENAI_MODEL=other\n")


AROUND: Final[Mapping[str, Callable[[Stage], None]]] = MappingProxyType(
    {
        "claude-code": _around_claude_code,
        "copilot-cli": _around_copilot,
        "codex": _around_codex,
        "gemini-cli": _around_gemini,
        "opencode": _around_opencode,
        "qwen-code": _around_qwen,
    }
)

KEY: Final = "the-persons-key"
SignIn = tuple[Mapping[str, str], str, str]
"""What a run has in its environment, and the header by which its requests have to come with the person's key."""


def _sign_in_to_claude_code(stage: Stage, place: str, url: str) -> SignIn:
    if place == "variable":
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}, "x-api-key", KEY
    oauth = {"accessToken": KEY, "refreshToken": "r", "expiresAt": 4102444800000}
    account = {**oauth, "scopes": ["user:inference"], "subscriptionType": "max"}
    write(stage.user / ".claude" / ".credentials.json", {"claudeAiOauth": account})
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": ""}, "authorization", f"Bearer {KEY}"


def _sign_in_to_codex(stage: Stage, place: str, url: str) -> SignIn:
    file = stage.user / ".codex" / "config.toml"
    config = file.read_text(encoding="utf-8").replace(stage.model.url, url)
    env = {"HARKEN_TRIAL_KEY": KEY}
    if place == "file":
        config = config.replace('env_key="HARKEN_TRIAL_KEY"', "requires_openai_auth=true")
        write(file.parent / "auth.json", {"OPENAI_API_KEY": KEY})
        env = {}
    write(file, config)
    return env, "authorization", f"Bearer {KEY}"


def _sign_in_to_copilot(_stage: Stage, _place: str, url: str) -> SignIn:
    env = {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": KEY}
    return env, "authorization", f"Bearer {KEY}"


def _sign_in_to_gemini(stage: Stage, place: str, url: str) -> SignIn:
    if place == "file":
        write(stage.user / ".gemini" / ".env", f"# mine\nexport GEMINI_API_KEY='{KEY}'\n")
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "" if place == "file" else KEY}
    return env, "x-goog-api-key", KEY


def _sign_in_to_opencode(stage: Stage, place: str, url: str) -> SignIn:
    content = json.loads(stage.environment["OPENCODE_CONFIG_CONTENT"])
    options = content["provider"]["trial"]["options"]
    options |= {"baseURL": f"{url}/v1", "apiKey": "{env:KEY_OF_MINE}"}
    if place == "file":
        del options["apiKey"]
        write(stage.user / ".local/share/opencode/auth.json", {"trial": {"type": "api", "key": KEY}})
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(content), "KEY_OF_MINE": KEY}
    return env, "authorization", f"Bearer {KEY}"


def _sign_in_to_qwen(stage: Stage, place: str, url: str) -> SignIn:
    env = {"OPENAI_API_KEY": KEY if place == "variable" else "", "OPENAI_BASE_URL": f"{url}/v1"}
    settings = stage.user / ".qwen" / "settings.json"
    if place == "file":
        write(stage.user / ".qwen" / ".env", f"OPENAI_API_KEY={KEY}\n")
    elif place == "settings":
        auth = {"selectedType": "openai", "apiKey": KEY, "baseUrl": f"{url}/v1"}
        changed(settings, {"security": {"auth": auth}})
    elif place == "provider":
        provider = {"id": THEIR_MODELS["qwen-code"], "baseUrl": f"{url}/v1", "envKey": "THEIR_KEY"}
        changed(settings, {"modelProviders": {"openai": [provider]}, "env": {"THEIR_KEY": KEY}})
    return env, "authorization", f"Bearer {KEY}"


SIGN_INS: Final[Mapping[str, Callable[[Stage, str, str], SignIn]]] = MappingProxyType(
    {
        "claude-code": _sign_in_to_claude_code,
        "copilot-cli": _sign_in_to_copilot,
        "codex": _sign_in_to_codex,
        "gemini-cli": _sign_in_to_gemini,
        "opencode": _sign_in_to_opencode,
        "qwen-code": _sign_in_to_qwen,
    }
)
PLACES: Final = [
    *((name, "variable") for name in SIGN_INS),
    *((name, "file") for name in SIGN_INS if name != "copilot-cli"),
    ("qwen-code", "settings"),
    ("qwen-code", "provider"),
]
