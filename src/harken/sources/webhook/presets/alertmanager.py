"""Alertmanager of Prometheus: it signs nothing, so the secret comes with each post, as a bearer's token or a password.

A post is about a group of alerts and becomes one message. It is repeated while they last: what stays the same of a
group, its state and which alerts it has with their times, is its name, so that a repeat is stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Final

from harken.model import Priority, Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    WebhookEvent,
    count,
    first,
    joined,
    listed,
    moment,
    one_line,
    rows,
    table,
    url,
    word,
)
from harken.sources.webhook.signing import check_bearer, shell_header

CHANNEL: Final = "alerts"
MAX_LABELS: Final = 30
MAX_ALERTS: Final = 10
MAX_HIDDEN: Final = 1_000_000


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what does not bring the secret."""
    check_bearer(posted, judging.keys)


def read(_posted: PostedRequest, payload: object) -> Reading:
    """Return what Alertmanager says of a group."""
    said = table(payload)
    alerts = rows(said, "alerts")
    severity = word(said, "commonLabels", "severity", most=40) or word(said, "groupLabels", "severity", most=40)
    is_firing = word(said, "status") != "resolved"
    starts = [at for alert in alerts if (at := moment(alert, "startsAt")) is not None]
    ends = [at for alert in alerts if (at := moment(alert, "endsAt")) is not None and not is_firing]
    return WebhookEvent(
        channel=f"{CHANNEL}/{severity}" if severity else CHANNEL,
        text=_text(said, alerts),
        sender=Sender("alertmanager", "Alertmanager"),
        id=_id(said, alerts),
        conversation=word(said, "receiver"),
        thread=_digest(word(said, "groupKey", most=4_000)) if "groupKey" in said else "",
        sent_at=max(ends or starts, default=None),
        priority=Priority.HIGH if is_firing and severity == "critical" else Priority.NORMAL,
        meta={
            key: value
            for key, value in {
                "status": word(said, "status"),
                "url": url(said, "externalURL"),
            }.items()
            if value
        },
    )


def _id(said: Mapping[str, object], alerts: list[Mapping[str, object]]) -> str:
    if not alerts:
        return ""
    # Of each alert what tells it from its next time; of one that fires the end is only a guess, and moves.
    each = sorted(
        "\0".join(
            [
                word(alert, "fingerprint") or _labels(table(alert, "labels")),
                word(alert, "status"),
                word(alert, "startsAt"),
                word(alert, "endsAt") if word(alert, "status") == "resolved" else "",
            ]
        )
        for alert in alerts
    )
    return _digest(word(said, "groupKey", most=4_000), word(said, "receiver"), word(said, "status"), *each)


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:32]


def _text(said: Mapping[str, object], alerts: list[Mapping[str, object]]) -> str:
    firing = sum(word(alert, "status") == "firing" for alert in alerts)
    name = first(said, "commonLabels.alertname", "groupLabels.alertname") or "Alerts"
    hidden = count(said, "truncatedAlerts")
    counts = ", ".join(
        part for part in (f"{firing} firing", f"{len(alerts) - firing} resolved") if not part.startswith("0 ")
    )
    shown = [line for alert in alerts[:MAX_ALERTS] for line in _alert(alert)]
    more = len(alerts) - MAX_ALERTS + hidden if len(alerts) > MAX_ALERTS else hidden
    return joined(
        [
            f"{word(said, 'status').upper() or 'ALERT'}: {name} ({counts or 'no alerts'})",
            *shown,
            f"and {more} more" if 0 < more < MAX_HIDDEN else "",
            url(said, "externalURL"),
        ]
    )


def _alert(alert: Mapping[str, object]) -> list[str]:
    annotations = table(alert, "annotations")
    summary = first(annotations, "summary", "title", "message", most=400)
    name = word(alert, "labels", "alertname") or "alert"
    rest = {key: value for key, value in annotations.items() if key not in {"summary", "title", "message"}}
    since = word(alert, "startsAt", most=40)
    return [
        f"- {word(alert, 'status') or 'firing'}: {summary or name}{f', since {since}' if since else ''}",
        f"  {_labels(table(alert, 'labels'))}" if table(alert, "labels") else "",
        *(f"  {line}" for line in listed(_annotations(rest), min(len(rest), MAX_LABELS))),
        f"  {found}" if (found := url(alert, "generatorURL")) else "",
    ]


def _annotations(found: Mapping[str, object]) -> list[str]:
    names = sorted(map(str, found))[:MAX_LABELS]
    return [f"{one_line(key, 60)}: {word(found, key, most=400)}" for key in names]


def _labels(labels: Mapping[str, object]) -> str:
    names = sorted(map(str, labels))
    shown = [f"{one_line(key, 60)}={word(labels, key, most=120)}" for key in names[:MAX_LABELS]]
    return " ".join(shown) + (" …" if len(names) > MAX_LABELS else "")


PRESET: Final = Preset(
    name="alertmanager",
    title="Alertmanager",
    check=check,
    read=read,
    where="In alertmanager.yml: receivers, webhook_configs, url, and http_config with authorization credentials_file.",
    shell=partial(shell_header, "Authorization: Bearer "),
    sample='{"status":"firing","alerts":[{"status":"firing","labels":{"alertname":"Hello"}}]}',
)
