"""GitHub: `X-Hub-Signature-256` on the body, the event's name in a header, JSON or a form with JSON in it.

A delivery that GitHub repeats has the same body; neither its name in `X-GitHub-Delivery` nor the event's is signed, so
the body must have the shape of the event that it is said to be. Each event that people wait for has a text of its own;
every other one is told in a line, so that none is dropped. A person is the sender only of what they wrote with this
event, and then nothing of others stands in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.model import Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    SkippedPost,
    WebhookEvent,
    body_id,
    count,
    first,
    headline,
    is_same,
    is_true,
    joined,
    listed,
    moment,
    one_line,
    plural,
    quoted,
    rows,
    sender_of,
    table,
    unsigned_id,
    url,
    word,
)
from harken.sources.webhook.signing import check_body, shell_body_signature

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

_Text = Callable[[Mapping[str, object], str], str]


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what GitHub did not sign."""
    check_body(posted, judging.keys, SIGNATURE, prefix="sha256=")


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what GitHub says."""
    event = one_line(posted.headers.get(EVENT, ""), 60) or "unknown"
    said = table(payload)
    if event == "ping" or said.keys() >= _GREETING:
        return SkippedPost("GitHub greets a new webhook")
    has, lacks = _SHAPES.get(event, (frozenset[str](), frozenset[str]()))
    if not has <= said.keys() or lacks & said.keys():
        raise UserError(
            f"The body is not that of the event {event}.", "GitHub signs the body and not the event's name."
        )
    login = first(said, "sender.login", "pusher.name", most=100)
    repository = word(said, "repository", "full_name")
    link = _link(said)
    text = joined([_TEXTS.get(event, _other)(said, login or "Somebody"), link])
    return WebhookEvent(
        channel=event,
        text=text if event in _TEXTS else f"{event}: {text}",
        sender=sender_of(SERVICE, login, login, is_own=event in _WRITTEN and _is_own(said, *_WRITTEN[event])),
        id=unsigned_id(posted, DELIVERY) if TIMELESS & said.keys() else body_id(posted),
        conversation=repository or word(said, "organization", "login"),
        thread=_thread(said, repository),
        sent_at=moment(said, "head_commit", "timestamp"),
        meta=_meta(said, link),
    )


def _is_own(said: Mapping[str, object], key: str, action: str) -> bool:
    """Whether who acted wrote what is at a key, and just now."""
    is_theirs = is_same(said, f"{key}.user.login", "sender.login") and word(said, "action") == action
    # With changes it was moved here, as others may have left it; an app writes in a person's name what it likes.
    return is_theirs and "changes" not in said and not table(said, key, "performed_via_github_app")


def _thread(said: Mapping[str, object], repository: str) -> str:
    number = first(said, "issue.number", "pull_request.number", "discussion.number")
    if number:
        return f"{repository}#{number}"
    ref = word(said, "ref")
    return f"{repository}@{ref}" if ref else repository


def _meta(said: Mapping[str, object], link: str) -> dict[str, str]:
    found = {"action": word(said, "action"), "url": link}
    return {key: value for key, value in found.items() if value}


def _link(said: Mapping[str, object]) -> str:
    for key in _SUBJECTS:
        if key in said and (found := url(said[key], "html_url", "target_url")):
            return found
    return url(said, "compare", "target_url", "repository.html_url")


def _place(said: Mapping[str, object]) -> str:
    return word(said, "repository", "full_name") or word(said, "organization", "login") or "a repository"


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/tags/")


def _push(said: Mapping[str, object], who: str) -> str:
    ref = word(said, "ref")
    place = f"{_branch(ref) or 'a branch'} of {_place(said)}"
    if is_true(said, "deleted"):
        return f"{who} deleted {place}"
    commits = rows(said, "commits")
    how = "force-pushed" if is_true(said, "forced") else "pushed"
    head = f"{who} {how} {plural(len(commits), 'commit')} to {place}"
    if not commits and is_true(said, "created"):
        head = f"{who} made {place}"
    return joined([head, *listed(map(_commit, commits), len(commits))])


def _commit(commit: Mapping[str, object]) -> str:
    author = first(commit, "author.name", "author.username", most=80) or "?"
    return f"- {word(commit, 'id')[:SHORT_ID] or '?'} {author}: {headline(commit, 'message') or '(no message)'}"


def _issue(said: Mapping[str, object], who: str) -> str:
    return _about(said, who, "issue", "issue")


def _pull_request(said: Mapping[str, object], who: str) -> str:
    action = word(said, "action")
    if action == "closed" and is_true(said, "pull_request", "merged"):
        action = "merged"
    return _about(said, who, "pull_request", "pull request", action=action)


def _about(said: Mapping[str, object], who: str, key: str, noun: str, action: str = "") -> str:
    thing = table(said, key)
    action = action or word(said, "action") or "changed"
    marks = ("label.name", "assignee.login", "requested_reviewer.login", "milestone.title")
    extra = first(said, *marks, most=80) if action not in {"opened", "created"} else ""
    head = f"{who} {action.replace('_', ' ')} {noun} #{word(thing, 'number')}{f' ({extra})' if extra else ''}"
    branches = f"{word(thing, 'head', 'ref')} into {word(thing, 'base', 'ref')}" if table(thing, "head") else ""
    is_new = action in {"opened", "created", "edited", "reopened"}
    return joined(
        [
            f"{head} in {_place(said)}: {word(thing, 'title') or '(no title)'}",
            branches,
            *(quoted(thing, "body") if is_new else []),
        ]
    )


def _comment(said: Mapping[str, object], who: str) -> str:
    verb = {"created": "commented", "deleted": "deleted a comment", "edited": "edited a comment"}
    action = verb.get(word(said, "action") or "created", "commented")
    subject = next((table(said, key) for key in ("issue", "pull_request", "discussion") if key in said), {})
    where = f"on #{word(subject, 'number')}" if subject else f"on {word(said, 'comment', 'commit_id')[:SHORT_ID]}"
    is_own = _is_own(said, "comment", "created")
    title, file = ("", "") if is_own else (word(subject, "title"), word(said, "comment", "path"))
    return joined(
        [
            f"{who} {action} {where} in {_place(said)}: {title}".rstrip(": "),
            f"file: {file}" if file else "",
            *quoted(said, "comment", "body"),
        ]
    )


def _review(said: Mapping[str, object], who: str) -> str:
    verbs = {"approved": "approved", "changes_requested": "asked for changes in", "commented": "reviewed"}
    state = word(said, "review", "state").lower()
    number = word(said, "pull_request", "number")
    title = "" if _is_own(said, "review", "submitted") else word(said, "pull_request", "title")
    head = f"{who} {verbs.get(state, state or 'reviewed')} pull request #{number} in {_place(said)}"
    return joined(
        [
            f"{head}: {title}" if title else head,
            *quoted(said, "review", "body"),
        ]
    )


def _outcome(said: Mapping[str, object], key: str, noun: str) -> str:
    run = table(said, key)
    result = first(run, "conclusion", "status") or word(said, "action")
    commit = (first(run, "head_sha", "sha") or word(said, "sha"))[:SHORT_ID]
    where = _branch(first(run, "head_branch", "check_suite.head_branch"))
    name = first(run, "name", "app.name", "workflow_name") or noun
    return joined(
        [
            f"{noun} {name}: {result.replace('_', ' ')}, {_place(said)} {where}{f' at {commit}' if commit else ''}",
            headline(run, "head_commit", "message") or word(run, "display_title"),
            "" if result in GOOD else headline(run, "output", "title"),
        ]
    )


def _workflow_run(said: Mapping[str, object], _who: str) -> str:
    return _outcome(said, "workflow_run", "Workflow")


def _workflow_job(said: Mapping[str, object], _who: str) -> str:
    return _outcome(said, "workflow_job", "Job")


def _check_run(said: Mapping[str, object], _who: str) -> str:
    return _outcome(said, "check_run", "Check")


def _check_suite(said: Mapping[str, object], _who: str) -> str:
    return _outcome(said, "check_suite", "Checks")


def _status(said: Mapping[str, object], _who: str) -> str:
    commit = word(said, "sha")[:SHORT_ID]
    head = f"{word(said, 'context') or 'Status'}: {word(said, 'state')}, {_place(said)} at {commit}"
    return joined([head, word(said, "description")])


def _release(said: Mapping[str, object], who: str) -> str:
    release = table(said, "release")
    name = first(release, "name", "tag_name")
    head = f"{who} {word(said, 'action') or 'changed'} release {word(release, 'tag_name')} of {_place(said)}: {name}"
    return joined([head, *quoted(release, "body")])


def _ref(verb: str) -> _Text:
    def text(said: Mapping[str, object], who: str) -> str:
        kind = word(said, "ref_type") or "branch"
        return f"{who} {verb} {kind} {word(said, 'ref')} in {_place(said)}"

    return text


def _deployment(said: Mapping[str, object], who: str) -> str:
    state, place = word(said, "deployment_status", "state"), word(said, "deployment", "environment")
    head = f"Deployment to {place or '?'}: {state or 'created by ' + who}, {_place(said)}"
    return joined([head, word(said, "deployment_status", "description")])


def _discussion(said: Mapping[str, object], who: str) -> str:
    return _about(said, who, "discussion", "discussion")


def _alert(said: Mapping[str, object], _who: str) -> str:
    alert = table(said, "alert")
    what = first(alert, "security_advisory.summary", "rule.description", "secret_type_display_name", "title")
    severity = first(alert, "security_advisory.severity", "rule.security_severity_level", "rule.severity")
    head = f"Security alert {word(said, 'action').replace('_', ' ')} in {_place(said)}: {what or '(no title)'}"
    return joined([head, f"severity: {severity}" if severity else ""])


def _other(said: Mapping[str, object], who: str) -> str:
    action = word(said, "action").replace("_", " ")
    what = first(said, "issue.title", "pull_request.title", "discussion.title", "package.name", "milestone.title")
    stars = count(said, "repository", "stargazers_count")
    extra = f" ({stars} stars)" if stars and "starred_at" in said else ""
    return f"{who} {action} {what}".rstrip() + f" in {_place(said)}{extra}"


_TEXTS: Final[Mapping[str, _Text]] = MappingProxyType(
    {
        "push": _push,
        "issues": _issue,
        "pull_request": _pull_request,
        "issue_comment": _comment,
        "commit_comment": _comment,
        "discussion_comment": _comment,
        "pull_request_review_comment": _comment,
        "pull_request_review": _review,
        "workflow_run": _workflow_run,
        "workflow_job": _workflow_job,
        "check_run": _check_run,
        "check_suite": _check_suite,
        "status": _status,
        "release": _release,
        "create": _ref("made"),
        "delete": _ref("deleted"),
        "deployment": _deployment,
        "deployment_status": _deployment,
        "discussion": _discussion,
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
    shell=shell_body_signature("X-Hub-Signature-256: sha256=", "'X-GitHub-Event: ping'"),
)
