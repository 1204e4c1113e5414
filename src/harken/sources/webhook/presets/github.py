"""GitHub: `X-Hub-Signature-256` on the body, the event's name in a header, JSON or a form with JSON in it.

A delivery that GitHub repeats has the same body; neither its name in `X-GitHub-Delivery` nor the event's is signed, so
the body must have the shape of the event that it is said to be. Each event that people wait for has a text of its own;
every other one is told in a line, so that none is dropped. A person is the sender only of what they wrote with this
event, and then nothing of others stands in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.model import Sender
from harken.sources.payload import Payload, joined, listed, one_line, plural
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    SkippedPost,
    WebhookEvent,
    body_id,
    check_body,
    sender_of,
    shell_body_signature,
    unsigned_id,
)

SIGNATURE: Final = "x-hub-signature-256"
EVENT: Final = "x-github-event"
DELIVERY: Final = "x-github-delivery"
SERVICE: Final = Sender("github", "GitHub")
# What is done to these is told without a time: somebody who is added, removed and added has the same bytes twice.
TIMELESS: Final = frozenset({"member", "membership", "team", "blocked_user", "thread"})
SHORT_ID: Final = 7
# What an event is about, the closest first: its page is where to look.
_SUBJECTS: Final = (
    "comment",
    "review",
    "pull_request",
    "issue",
    "discussion",
    "release",
    "workflow_run",
    "workflow_job",
    "check_run",
    "deployment_status",
    "alert",
    "forkee",
)
_GREETING: Final = frozenset({"zen", "hook_id"})
# What the body of an event has, and what it would have if it were another one.
_SHAPES: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = MappingProxyType(
    {
        event: (frozenset(has.split()), frozenset(lacks.split()))
        for event, has, lacks in (
            ("push", "ref commits", ""),
            ("issues", "issue", "comment"),
            ("pull_request", "pull_request", "comment review thread"),
            ("issue_comment", "issue comment", ""),
            ("commit_comment", "comment", "issue pull_request discussion"),
            ("discussion_comment", "discussion comment", ""),
            ("pull_request_review_comment", "pull_request comment", ""),
            ("pull_request_review", "pull_request review", ""),
            ("workflow_run", "workflow_run", ""),
            ("workflow_job", "workflow_job", ""),
            ("check_run", "check_run", ""),
            ("check_suite", "check_suite", ""),
            ("status", "sha state", ""),
            ("release", "release", ""),
            ("create", "ref ref_type master_branch", ""),
            ("delete", "ref ref_type", "master_branch"),
            ("deployment", "deployment", "deployment_status"),
            ("deployment_status", "deployment_status", ""),
            ("discussion", "discussion", "comment"),
            ("dependabot_alert", "alert", ""),
            ("code_scanning_alert", "alert", ""),
            ("secret_scanning_alert", "alert", ""),
        )
    }
)
GOOD: Final = frozenset({"success", "neutral", "skipped"})
# Of which events somebody wrote the text: where it is, and what is done when it is written.
_WRITTEN: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "issues": ("issue", "opened"),
        "pull_request": ("pull_request", "opened"),
        "discussion": ("discussion", "created"),
        "issue_comment": ("comment", "created"),
        "commit_comment": ("comment", "created"),
        "discussion_comment": ("comment", "created"),
        "pull_request_review_comment": ("comment", "created"),
        "pull_request_review": ("review", "submitted"),
    }
)

_Text = Callable[[Payload, str], str]


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what GitHub did not sign."""
    check_body(posted, judging.keys, SIGNATURE, prefix="sha256=")


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what GitHub says."""
    event = one_line(posted.headers.get(EVENT, ""), 60) or "unknown"
    said = Payload(payload)
    if event == "ping" or said.keys() >= _GREETING:
        return SkippedPost("GitHub greets a new webhook")
    has, lacks = _SHAPES.get(event, (frozenset[str](), frozenset[str]()))
    if not has <= said.keys() or lacks & said.keys():
        raise UserError(
            f"The body is not that of the event {event}.", "GitHub signs the body and not the event's name."
        )
    login = said.first("sender.login", "pusher.name", most=100)
    repository = said.word("repository", "full_name")
    link = _link(said)
    text = joined([_TEXTS.get(event, _other)(said, login or "Somebody"), link])
    return WebhookEvent(
        channel=event,
        text=text if event in _TEXTS else f"{event}: {text}",
        sender=sender_of(SERVICE, login, login, is_own=event in _WRITTEN and _is_own(said, *_WRITTEN[event])),
        id=unsigned_id(posted, DELIVERY) if TIMELESS & said.keys() else body_id(posted),
        conversation=repository or said.word("organization", "login"),
        thread=_thread(said, repository),
        sent_at=said.moment("head_commit", "timestamp"),
        meta=_meta(said, link),
    )


def _is_own(said: Payload, key: str, action: str) -> bool:
    """Whether who acted wrote what is at a key, and just now."""
    is_theirs = said.is_same(f"{key}.user.login", "sender.login") and said.word("action") == action
    # With changes it was moved here, as others may have left it; an app writes in a person's name what it likes.
    return is_theirs and "changes" not in said and not said.part(key, "performed_via_github_app")


def _thread(said: Payload, repository: str) -> str:
    number = said.first("issue.number", "pull_request.number", "discussion.number")
    if number:
        return f"{repository}#{number}"
    ref = said.word("ref")
    return f"{repository}@{ref}" if ref else repository


def _meta(said: Payload, link: str) -> dict[str, str]:
    found = {"action": said.word("action"), "url": link}
    return {key: value for key, value in found.items() if value}


def _link(said: Payload) -> str:
    for key in _SUBJECTS:
        if found := said.part(key).url("html_url", "target_url"):
            return found
    return said.url("compare", "target_url", "repository.html_url")


def _place(said: Payload) -> str:
    return said.word("repository", "full_name") or said.word("organization", "login") or "a repository"


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/tags/")


def _push(said: Payload, who: str) -> str:
    ref = said.word("ref")
    place = f"{_branch(ref) or 'a branch'} of {_place(said)}"
    if said.is_true("deleted"):
        return f"{who} deleted {place}"
    commits = said.rows("commits")
    how = "force-pushed" if said.is_true("forced") else "pushed"
    head = f"{who} {how} {plural(len(commits), 'commit')} to {place}"
    if not commits and said.is_true("created"):
        head = f"{who} made {place}"
    return joined([head, *listed(map(_commit, commits), len(commits))])


def _commit(commit: Payload) -> str:
    author = commit.first("author.name", "author.username", most=80) or "?"
    return f"- {commit.word('id')[:SHORT_ID] or '?'} {author}: {commit.headline('message') or '(no message)'}"


def _pull_request(said: Payload, who: str) -> str:
    action = said.word("action")
    if action == "closed" and said.is_true("pull_request", "merged"):
        action = "merged"
    return _about("pull_request", "pull request", said, who, action=action)


def _about(key: str, noun: str, said: Payload, who: str, action: str = "") -> str:
    thing = said.part(key)
    action = action or said.word("action") or "changed"
    marks = ("label.name", "assignee.login", "requested_reviewer.login", "milestone.title")
    extra = said.first(*marks, most=80) if action not in {"opened", "created"} else ""
    head = f"{who} {action.replace('_', ' ')} {noun} #{thing.word('number')}{f' ({extra})' if extra else ''}"
    branches = f"{thing.word('head', 'ref')} into {thing.word('base', 'ref')}" if thing.part("head") else ""
    is_new = action in {"opened", "created", "edited", "reopened"}
    return joined(
        [
            f"{head} in {_place(said)}: {thing.word('title') or '(no title)'}",
            branches,
            *(thing.quoted("body") if is_new else []),
        ]
    )


def _comment(said: Payload, who: str) -> str:
    verb = {"created": "commented", "deleted": "deleted a comment", "edited": "edited a comment"}
    action = verb.get(said.word("action") or "created", "commented")
    subject = next((said.part(key) for key in ("issue", "pull_request", "discussion") if key in said), Payload(None))
    where = f"on #{subject.word('number')}" if subject else f"on {said.word('comment', 'commit_id')[:SHORT_ID]}"
    is_own = _is_own(said, "comment", "created")
    title, file = ("", "") if is_own else (subject.word("title"), said.word("comment", "path"))
    return joined(
        [
            f"{who} {action} {where} in {_place(said)}: {title}".rstrip(": "),
            f"file: {file}" if file else "",
            *said.quoted("comment", "body"),
        ]
    )


def _review(said: Payload, who: str) -> str:
    verbs = {"approved": "approved", "changes_requested": "asked for changes in", "commented": "reviewed"}
    state = said.word("review", "state").lower()
    number = said.word("pull_request", "number")
    title = "" if _is_own(said, "review", "submitted") else said.word("pull_request", "title")
    head = f"{who} {verbs.get(state, state or 'reviewed')} pull request #{number} in {_place(said)}"
    return joined(
        [
            f"{head}: {title}" if title else head,
            *said.quoted("review", "body"),
        ]
    )


def _outcome(key: str, noun: str, said: Payload, _who: str) -> str:
    run = said.part(key)
    result = run.first("conclusion", "status") or said.word("action")
    commit = (run.first("head_sha", "sha") or said.word("sha"))[:SHORT_ID]
    where = _branch(run.first("head_branch", "check_suite.head_branch"))
    name = run.first("name", "app.name", "workflow_name") or noun
    return joined(
        [
            f"{noun} {name}: {result.replace('_', ' ')}, {_place(said)} {where}{f' at {commit}' if commit else ''}",
            run.headline("head_commit", "message") or run.word("display_title"),
            "" if result in GOOD else run.headline("output", "title"),
        ]
    )


def _status(said: Payload, _who: str) -> str:
    commit = said.word("sha")[:SHORT_ID]
    head = f"{said.word('context') or 'Status'}: {said.word('state')}, {_place(said)} at {commit}"
    return joined([head, said.word("description")])


def _release(said: Payload, who: str) -> str:
    release = said.part("release")
    name = release.first("name", "tag_name")
    head = f"{who} {said.word('action') or 'changed'} release {release.word('tag_name')} of {_place(said)}: {name}"
    return joined([head, *release.quoted("body")])


def _ref(verb: str) -> _Text:
    def text(said: Payload, who: str) -> str:
        kind = said.word("ref_type") or "branch"
        return f"{who} {verb} {kind} {said.word('ref')} in {_place(said)}"

    return text


def _deployment(said: Payload, who: str) -> str:
    state, place = said.word("deployment_status", "state"), said.word("deployment", "environment")
    head = f"Deployment to {place or '?'}: {state or 'created by ' + who}, {_place(said)}"
    return joined([head, said.word("deployment_status", "description")])


def _alert(said: Payload, _who: str) -> str:
    alert = said.part("alert")
    what = alert.first("security_advisory.summary", "rule.description", "secret_type_display_name", "title")
    severity = alert.first("security_advisory.severity", "rule.security_severity_level", "rule.severity")
    head = f"Security alert {said.word('action').replace('_', ' ')} in {_place(said)}: {what or '(no title)'}"
    return joined([head, f"severity: {severity}" if severity else ""])


def _other(said: Payload, who: str) -> str:
    action = said.word("action").replace("_", " ")
    what = said.first("issue.title", "pull_request.title", "discussion.title", "package.name", "milestone.title")
    stars = said.count("repository", "stargazers_count")
    extra = f" ({stars} stars)" if stars and "starred_at" in said else ""
    return f"{who} {action} {what}".rstrip() + f" in {_place(said)}{extra}"


_TEXTS: Final[Mapping[str, _Text]] = MappingProxyType(
    {
        "push": _push,
        "issues": partial(_about, "issue", "issue"),
        "pull_request": _pull_request,
        "issue_comment": _comment,
        "commit_comment": _comment,
        "discussion_comment": _comment,
        "pull_request_review_comment": _comment,
        "pull_request_review": _review,
        "workflow_run": partial(_outcome, "workflow_run", "Workflow"),
        "workflow_job": partial(_outcome, "workflow_job", "Job"),
        "check_run": partial(_outcome, "check_run", "Check"),
        "check_suite": partial(_outcome, "check_suite", "Checks"),
        "status": _status,
        "release": _release,
        "create": _ref("made"),
        "delete": _ref("deleted"),
        "deployment": _deployment,
        "deployment_status": _deployment,
        "discussion": partial(_about, "discussion", "discussion"),
        "dependabot_alert": _alert,
        "code_scanning_alert": _alert,
        "secret_scanning_alert": _alert,
    }
)

PRESET: Final = Preset(
    name="github",
    title="GitHub",
    check=check,
    read=read,
    has_form=True,
    where="In the repository or organization: Settings, Webhooks, Add webhook; content type application/json.",
    shell=shell_body_signature("X-Hub-Signature-256: sha256=", "'X-GitHub-Event: issues'"),
    sample='{"action":"opened","issue":{"number":1,"title":"hello"},"repository":{"full_name":"you/project"}}',
)
