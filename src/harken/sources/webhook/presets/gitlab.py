"""GitLab: `X-Gitlab-Token` holds the secret itself, or the post is signed with a signing token as Standard Webhooks is.

A delivery that GitLab repeats keeps its `Idempotency-Key`. What happened is in `object_kind`; kinds without a text of
their own are told in a line. A person is the sender only of a note or an issue that they wrote with this event, and
then nothing of others stands in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from harken.model import Sender
from harken.sources.payload import Payload, joined, listed, one_line, plural
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    STANDARD_PREFIX,
    Keys,
    Preset,
    Reading,
    SignatureCheck,
    WebhookEvent,
    check_standard,
    check_token,
    plain_keys,
    sender_of,
    shell_header,
    signed_id,
    standard_keys,
    unsigned_id,
)

PLAIN: Final = "x-gitlab-token"
SIGNATURE: Final = "webhook-signature"
EVENT: Final = "x-gitlab-event"
SIGNED_ID: Final = "webhook-id"
PLAIN_ID: Final = "idempotency-key"  # its other one, x-gitlab-event-uuid, names several deliveries
SERVICE: Final = Sender("gitlab", "GitLab")
SHORT_ID: Final = 8
MAX_SECONDS: Final = 10_000_000
NOBODY: Final = frozenset("0")  # the id before the first commit, and after the last

# What is done when somebody writes the text. Not a merge request: GitLab copies titles of issues and commits into it.
_WRITTEN: Final[Mapping[str, str]] = MappingProxyType({"note": "create", "issue": "open", "work_item": "open"})

_Text = Callable[[Payload, str], str]


def keys(secret: str) -> Keys:
    """Return what the secret may be: a signing token, or a text that comes as it is."""
    return (*plain_keys(secret), *standard_keys(secret)) if secret.startswith(STANDARD_PREFIX) else plain_keys(secret)


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what does not come from GitLab; a signature counts more than the secret itself."""
    if SIGNATURE in posted.headers:
        check_standard(posted, judging.keys, judging.now, judging.window)
    else:
        check_token(posted, judging.keys, PLAIN)


def _id(posted: PostedRequest) -> str:
    if SIGNATURE in posted.headers:
        return signed_id(posted.headers.get(SIGNED_ID, ""))
    return unsigned_id(posted, PLAIN_ID)


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what GitLab says."""
    said = Payload(payload)
    kind = said.first("object_kind", "event_name", most=60) or one_line(posted.headers.get(EVENT, ""), 60) or "unknown"
    login = said.first("user.username", "user_username", most=100)
    name = said.first("user.name", "user_name", most=100)
    project = said.first("project.path_with_namespace", "project_name", "group.full_path", "path_with_namespace")
    text = _TEXTS.get(kind, _other)(said, name or login or "Somebody")
    return WebhookEvent(
        channel=kind,
        text=text if kind in _TEXTS else f"{kind}: {text}",
        sender=sender_of(SERVICE, login, name, is_own=_is_own(said, kind)),
        id=_id(posted),
        conversation=project,
        thread=_thread(said, project),
        sent_at=said.moment("object_attributes", "updated_at"),
        meta={key: value for key, value in {"action": _action(said), "url": _link(said)}.items() if value},
    )


def _is_own(said: Payload, kind: str) -> bool:
    """Whether who acted wrote the text, and just now."""
    thing = said.part("object_attributes")
    is_new = kind in _WRITTEN and thing.word("action") == _WRITTEN[kind]
    # A note of the system repeats what others called something.
    return is_new and said.is_same("object_attributes.author_id", "user.id") and not thing.is_true("system")


def _action(said: Payload) -> str:
    return said.first("object_attributes.action", "object_attributes.status", "build_status", "status", "action")


def _thread(said: Payload, project: str) -> str:
    kind = said.word("object_kind")
    request = said.first("merge_request.iid") or (kind == "merge_request" and said.word("object_attributes", "iid"))
    if request:
        return f"{project}!{request}"
    issue = said.first("issue.iid") or (kind == "issue" and said.word("object_attributes", "iid"))
    if issue:
        return f"{project}#{issue}"
    ref = said.first("ref", "object_attributes.ref")
    return f"{project}@{ref}" if ref else project


def _link(said: Payload) -> str:
    return said.url("object_attributes.url", "url", "target_url", "deployable_url", "project.web_url", "build_url")


def _place(said: Payload) -> str:
    return said.first("project.path_with_namespace", "project_name", "group.full_path") or "a project"


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/tags/")


def _push(said: Payload, who: str) -> str:
    commits = said.rows("commits")
    place = f"{_branch(said.word('ref')) or 'a branch'} of {_place(said)}"
    after = said.word("after")
    if after and set(after) <= NOBODY:
        return joined([f"{who} deleted {place}", _link(said)])
    total = max(said.count("total_commits_count"), len(commits))
    lines = listed(map(_commit, commits), total)
    return joined([f"{who} pushed {plural(total, 'commit')} to {place}", *lines, _link(said)])


def _commit(commit: Payload) -> str:
    author = commit.word("author", "name", most=80) or "?"
    subject = commit.headline("message") or commit.headline("title") or "(no message)"
    return f"- {commit.word('id')[:SHORT_ID] or '?'} {author}: {subject}"


def _subject(noun: str, mark: str) -> _Text:
    def text(said: Payload, who: str) -> str:
        thing = said.part("object_attributes")
        action = thing.first("action", "state") or "changed"
        verb = {"open": "opened", "close": "closed", "reopen": "reopened", "update": "changed", "merge": "merged"}
        branches = f"{thing.word('source_branch')} into {thing.word('target_branch')}"
        is_new = action in {"open", "reopen"}
        head = f"{who} {verb.get(action, action)} {noun} {mark}{thing.word('iid')} in {_place(said)}"
        return joined(
            [
                f"{head}: {thing.word('title') or '(no title)'}",
                branches if "source_branch" in thing else "",
                *(thing.quoted("description") if is_new else []),
                _link(said),
            ]
        )

    return text


def _note(said: Payload, who: str) -> str:
    request, issue = said.word("merge_request", "iid"), said.word("issue", "iid")
    commit = said.word("commit", "id")[:SHORT_ID]
    where = f"!{request}" if request else f"#{issue}" if issue else commit or "something"
    title = "" if _is_own(said, "note") else said.first("merge_request.title", "issue.title", "snippet.title")
    head = f"{who} commented on {where} in {_place(said)}{f': {title}' if title else ''}"
    return joined([head, *said.quoted("object_attributes", "note"), _link(said)])


def _pipeline(said: Payload, who: str) -> str:
    run = said.part("object_attributes")
    seconds = run.count("duration")
    broken = [job for job in said.rows("builds") if job.word("status") == "failed"]
    took = f" after {seconds} s" if 0 < seconds < MAX_SECONDS else ""
    return joined(
        [
            f"Pipeline {run.word('id')}: {run.word('status')}{took}, {_place(said)} {run.word('ref')}, by {who}",
            said.headline("commit", "message"),
            *listed((f"- failed: {job.word('stage')} / {job.word('name')}" for job in broken), len(broken)),
            _link(said),
        ]
    )


def _job(said: Payload, _who: str) -> str:
    name, stage = said.word("build_name"), said.word("build_stage")
    reason = said.word("build_failure_reason") if said.word("build_status") == "failed" else ""
    head = f"Job {stage} / {name}: {said.word('build_status')}, {_place(said)} {said.word('ref')}"
    return joined([head, said.headline("commit", "message"), f"reason: {reason}" if reason else "", _link(said)])


def _deployment(said: Payload, who: str) -> str:
    head = f"Deployment to {said.word('environment')}: {said.word('status')}, {_place(said)}, by {who}"
    return joined([head, said.word("commit_title"), _link(said)])


def _release(said: Payload, who: str) -> str:
    head = f"{who} {said.word('action') or 'change'}d release {said.word('tag')} of {_place(said)}: {said.word('name')}"
    return joined([head, *said.quoted("description"), _link(said)])


def _other(said: Payload, who: str) -> str:
    title = said.first("object_attributes.title", "object_attributes.name", "name")
    is_told = "object_kind" in said or "event_name" in said
    # Without even a kind there is nothing to tell it by but itself.
    body = "" if is_told else said.as_json()
    return joined([f"{who} {_action(said)} {title}".rstrip() + f" in {_place(said)}", body, _link(said)])


_TEXTS: Final[Mapping[str, _Text]] = MappingProxyType(
    {
        "push": _push,
        "tag_push": _push,
        "issue": _subject("issue", "#"),
        "work_item": _subject("work item", "#"),
        "merge_request": _subject("merge request", "!"),
        "note": _note,
        "pipeline": _pipeline,
        "build": _job,
        "deployment": _deployment,
        "release": _release,
    }
)

PRESET: Final = Preset(
    name="gitlab",
    title="GitLab",
    check=check,
    read=read,
    keys=keys,
    where="In the project or group: Settings, Webhooks, Add new webhook; the secret goes into Secret token.",
    shell=partial(shell_header, "X-Gitlab-Token: "),
    sample='{"object_kind":"issue","object_attributes":{"iid":1,"action":"open","title":"hello"}}',
)
