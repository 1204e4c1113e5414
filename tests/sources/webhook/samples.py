"""Payloads in the shapes that the services document, written for these tests and cut to what they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Payload: TypeAlias = Mapping[str, Any]

_REPOSITORY: Final[Payload] = {
    "id": 1296269,
    "full_name": "octo/shop",
    "html_url": "https://github.com/octo/shop",
    "owner": {"login": "octo"},
}
_ANN: Final[Payload] = {"login": "ann", "id": 1, "type": "User"}
_ISSUE: Final[Payload] = {
    "number": 7,
    "title": "The basket is empty",
    "state": "open",
    "body": "I put\ntwo things in.",
    "html_url": "https://github.com/octo/shop/issues/7",
    "user": _ANN,
}
_PULL: Final[Payload] = {
    "number": 9,
    "title": "Fill the basket",
    "body": "Fixes #7",
    "merged": True,
    "html_url": "https://github.com/octo/shop/pull/9",
    "head": {"ref": "fill", "sha": "1" * 40},
    "base": {"ref": "main"},
}

GITHUB_PUSH: Final[Payload] = {
    "ref": "refs/heads/main",
    "before": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
    "after": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
    "created": False,
    "deleted": False,
    "forced": False,
    "compare": "https://github.com/octo/shop/compare/6113728f27ae...0d1a26e67d8f",
    "commits": [
        {
            "id": "6d5f3b7a8c2e1f0d9b8a7c6e5d4f3a2b1c0d9e8f",
            "message": "Count what is in the basket\n\nIt was always empty.",
            "timestamp": "2026-01-02T03:00:00+01:00",
            "author": {"name": "Ann Lee", "email": "ann@example.org", "username": "ann"},
            "added": ["basket.py"],
        },
        {
            "id": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
            "message": "Test it",
            "timestamp": "2026-01-02T03:02:00+01:00",
            "author": {"name": "Bo", "email": "bo@example.org"},
        },
    ],
    "head_commit": {"id": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c", "timestamp": "2026-01-02T03:02:00+01:00"},
    "repository": _REPOSITORY,
    "pusher": {"name": "ann", "email": "ann@example.org"},
    "sender": _ANN,
}
GITHUB_ISSUE: Final[Payload] = {"action": "opened", "issue": _ISSUE, "repository": _REPOSITORY, "sender": _ANN}
GITHUB_MERGED: Final[Payload] = {
    "action": "closed",
    "number": 9,
    "pull_request": _PULL,
    "repository": _REPOSITORY,
    "sender": _ANN,
}
GITHUB_COMMENT: Final[Payload] = {
    "action": "created",
    "issue": _ISSUE,
    "comment": {
        "body": "Which\nbrowser?",
        "html_url": "https://github.com/octo/shop/issues/7#issuecomment-1",
        "user": _ANN,
    },
    "repository": _REPOSITORY,
    "sender": _ANN,
}
GITHUB_REVIEW: Final[Payload] = {
    "action": "submitted",
    "review": {
        "state": "changes_requested",
        "body": "Please add a test.",
        "html_url": "https://github.com/octo/shop/pull/9#pullrequestreview-1",
        "user": _ANN,
    },
    "pull_request": _PULL,
    "repository": _REPOSITORY,
    "sender": _ANN,
}
GITHUB_RUN: Final[Payload] = {
    "action": "completed",
    "workflow_run": {
        "name": "CI",
        "head_branch": "main",
        "head_sha": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
        "status": "completed",
        "conclusion": "failure",
        "html_url": "https://github.com/octo/shop/actions/runs/1",
        "head_commit": {"message": "Test it"},
    },
    "repository": _REPOSITORY,
    "sender": _ANN,
}
GITHUB_STAR: Final[Payload] = {
    "action": "created",
    "starred_at": "2026-01-02T03:00:00Z",
    "repository": {**_REPOSITORY, "stargazers_count": 12},
    "sender": _ANN,
}
GITHUB_PING: Final[Payload] = {"zen": "Keep it simple.", "hook_id": 1, "hook": {"type": "Repository"}}

_PROJECT: Final[Payload] = {
    "name": "Shop",
    "path_with_namespace": "octo/shop",
    "web_url": "https://gitlab.example.org/octo/shop",
}
GITLAB_PUSH: Final[Payload] = {
    "object_kind": "push",
    "event_name": "push",
    "before": "95790bf891e76fee5e1747ab589903a6a1f80f22",
    "after": "da1560886d4f094c3e6c9ef40349f7d38b5d27d7",
    "ref": "refs/heads/main",
    "user_name": "Ann Lee",
    "user_username": "ann",
    "project": _PROJECT,
    "commits": [
        {
            "id": "b6568db1bc1dcd7f8b4d5a946b0b91f9dacd7327",
            "message": "Count what is in the basket\n\nSee #7",
            "title": "Count what is in the basket",
            "author": {"name": "Ann Lee", "email": "ann@example.org"},
        }
    ],
    "total_commits_count": 4,
}
GITLAB_MERGE: Final[Payload] = {
    "object_kind": "merge_request",
    "user": {"name": "Ann Lee", "username": "ann"},
    "project": _PROJECT,
    "object_attributes": {
        "iid": 9,
        "title": "Fill the basket",
        "description": "Closes #7",
        "action": "open",
        "source_branch": "fill",
        "target_branch": "main",
        "url": "https://gitlab.example.org/octo/shop/-/merge_requests/9",
        "updated_at": "2026-01-02 03:00:00 UTC",
    },
}
GITLAB_PIPELINE: Final[Payload] = {
    "object_kind": "pipeline",
    "object_attributes": {
        "id": 31,
        "ref": "main",
        "status": "failed",
        "duration": 63,
        "url": "https://gitlab.example.org/octo/shop/-/pipelines/31",
    },
    "user": {"name": "Ann Lee", "username": "ann"},
    "project": _PROJECT,
    "commit": {"id": "b6568db1", "message": "Count what is in the basket\n"},
    "builds": [
        {"stage": "build", "name": "image", "status": "success"},
        {"stage": "test", "name": "unit", "status": "failed"},
    ],
}
SLACK_MESSAGE: Final[Payload] = {
    "token": "old",
    "team_id": "T061EG9R6",
    "api_app_id": "A0PNCHHK2",
    "event": {
        "type": "message",
        "channel": "C024BE91L",
        "user": "U2147483697",
        "text": "Is the shop\ndown?",
        "ts": "1767323000.000005",
        "event_ts": "1767323000.000005",
        "channel_type": "channel",
    },
    "type": "event_callback",
    "event_id": "Ev08MFMKH6",
    "event_time": 1767323000,
}
SLACK_CHALLENGE: Final[Payload] = {"token": "old", "challenge": "3eZbrw1aBm2rZgRNFdxV", "type": "url_verification"}
ALERTS: Final[Payload] = {
    "version": "4",
    "groupKey": '{}:{alertname="DiskFull"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "harken",
    "groupLabels": {"alertname": "DiskFull"},
    "commonLabels": {"alertname": "DiskFull", "severity": "critical"},
    "commonAnnotations": {},
    "externalURL": "http://alerts.example.org:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "DiskFull", "instance": "db1:9100", "severity": "critical"},
            "annotations": {"summary": "Disk of db1 is 96 % full", "runbook_url": "https://runbooks.example.org/disk"},
            "startsAt": "2026-01-02T03:00:00.000Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example.org:9090/graph?g0.expr=x",
            "fingerprint": "c4a7f1f6a0c1e2d3",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "DiskFull", "instance": "db2:9100", "severity": "critical"},
            "annotations": {"summary": "Disk of db2 is 91 % full"},
            "startsAt": "2026-01-02T02:00:00.000Z",
            "endsAt": "2026-01-02T03:01:00.000Z",
            "generatorURL": "",
            "fingerprint": "d4a7f1f6a0c1e2d4",
        },
    ],
}
JIRA_UPDATED: Final[Payload] = {
    "timestamp": 1767323000000,
    "webhookEvent": "jira:issue_updated",
    "issue_event_type_name": "issue_generic",
    "user": {"accountId": "99:27935d01-92a7-4687-8272-a9b8d3b2ae2e", "displayName": "Ann Lee"},
    "issue": {
        "id": "99291",
        "self": "https://octo.atlassian.net/rest/api/2/issue/99291",
        "key": "SHOP-7",
        "fields": {
            "summary": "The basket is empty",
            "issuetype": {"name": "Bug"},
            "status": {"name": "In Progress"},
            "assignee": {"displayName": "Bo"},
            "project": {"key": "SHOP"},
        },
    },
    "changelog": {
        "id": "10124",
        "items": [{"field": "status", "fieldtype": "jira", "fromString": "To Do", "toString": "In Progress"}],
    },
}
JIRA_COMMENT: Final[Payload] = {
    "timestamp": 1767323000000,
    "webhookEvent": "comment_created",
    "comment": {
        "author": {"accountId": "99:1", "displayName": "Ann Lee"},
        "body": {
            "type": "doc",
            "content": [{"type": "paragraph", "content": [{"type": "text", "text": "Which browser?"}]}],
        },
    },
    "issue": {"key": "SHOP-7", "self": "https://octo.atlassian.net/rest/api/2/issue/1", "fields": {"summary": "Empty"}},
}
SENTRY_ISSUE: Final[Payload] = {
    "action": "created",
    "installation": {"uuid": "a8e5d37a-696c-4c54-adb5-b3f28d64c7de"},
    "data": {
        "issue": {
            "id": "1170820242",
            "shortId": "SHOP-1",
            "title": "ReferenceError: basket is not defined",
            "culprit": "add(basket.js)",
            "count": "12",
            "level": "error",
            "project": {"slug": "shop", "name": "Shop"},
            "web_url": "https://sentry.io/organizations/octo/issues/1170820242/",
            "lastSeen": "2026-01-02T03:00:00.000000Z",
        }
    },
    "actor": {"id": "sentry", "name": "Sentry", "type": "application"},
}
SENTRY_ALERT: Final[Payload] = {
    "action": "triggered",
    "data": {
        "triggered_rule": "Very important",
        "event": {
            "title": "TypeError: nothing to add",
            "culprit": "add(basket)",
            "issue_id": "1170820242",
            "project": 1,
            "environment": "production",
            "level": "error",
            "web_url": "https://sentry.io/organizations/octo/issues/1170820242/events/1/",
            "datetime": "2026-01-02T03:00:00.000000Z",
            "exception": {
                "values": [
                    {
                        "stacktrace": {
                            "frames": [
                                {"filename": "app.js", "lineno": 10, "function": "main"},
                                {"filename": "basket.js", "lineno": 29, "function": "add"},
                            ]
                        }
                    }
                ]
            },
        },
    },
    "actor": {"id": "sentry", "name": "Sentry", "type": "application"},
}
SENTRY_COMMENT: Final[Payload] = {
    "action": "created",
    "data": {
        "comment": "Seen on the\nnew server only",
        "comment_id": 1234,
        "issue_id": 1170820242,
        "project_slug": "shop",
        "timestamp": "2026-01-02T03:00:00.000000Z",
    },
    "actor": {"id": 789877, "name": "Ann Lee", "type": "user"},
}
STANDARD_EVENT: Final[Payload] = {
    "type": "invoice.paid",
    "timestamp": "2026-01-02T03:00:00Z",
    "data": {"id": "in_1", "amount": 20},
}
