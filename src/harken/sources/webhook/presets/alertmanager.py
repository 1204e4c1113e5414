"""Alertmanager of Prometheus: it signs nothing, so the secret comes with each post, as a bearer's token or a password.

A post is about a group of alerts and becomes one message. It is repeated while they last: what stays the same of a
group, its state and which alerts it has with their times, is its name, so that a repeat is stored once.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from harken.model import Priority, Sender
from harken.sources.payload import Payload, digest_of, joined, listed, one_line
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import Preset, Reading, SignatureCheck, WebhookEvent, check_bearer, shell_header

CHANNEL: Final = "alerts"
MAX_LABELS: Final = 30
MAX_ALERTS: Final = 10
MAX_HIDDEN: Final = 1_000_000


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what does not bring the secret."""
    check_bearer(posted, judging.keys)


def read(_posted: PostedRequest, payload: object) -> Reading:
    """Return what Alertmanager says of a group."""
    said = Payload(payload)
    alerts = said.rows("alerts")
    severity = said.word("commonLabels", "severity", most=40) or said.word("groupLabels", "severity", most=40)
    is_firing = said.word("status") != "resolved"
    starts = [at for alert in alerts if (at := alert.moment("startsAt")) is not None]
    ends = [at for alert in alerts if (at := alert.moment("endsAt")) is not None and not is_firing]
    return WebhookEvent(
        channel=f"{CHANNEL}/{severity}" if severity else CHANNEL,
        text=_text(said, alerts),
        sender=Sender("alertmanager", "Alertmanager"),
        id=_id(said, alerts),
        conversation=said.word("receiver"),
        thread=digest_of(said.word("groupKey", most=4_000)) if "groupKey" in said else "",
        sent_at=max(ends or starts, default=None),
        priority=Priority.HIGH if is_firing and severity == "critical" else Priority.NORMAL,
        meta={
            key: value
            for key, value in {
                "status": said.word("status"),
                "url": said.url("externalURL"),
            }.items()
            if value
        },
    )


def _id(said: Payload, alerts: list[Payload]) -> str:
    if not alerts:
        return ""
    # Of each alert what tells it from its next time; of one that fires the end is only a guess, and moves.
    each = sorted(
        "\0".join(
            [
                alert.word("fingerprint") or _labels(alert.part("labels")),
                alert.word("status"),
                alert.word("startsAt"),
                alert.word("endsAt") if alert.word("status") == "resolved" else "",
            ]
        )
        for alert in alerts
    )
    return digest_of(said.word("groupKey", most=4_000), said.word("receiver"), said.word("status"), *each)


def _text(said: Payload, alerts: list[Payload]) -> str:
    firing = sum(alert.word("status") == "firing" for alert in alerts)
    name = said.first("commonLabels.alertname", "groupLabels.alertname") or "Alerts"
    hidden = said.count("truncatedAlerts")
    counts = ", ".join(
        part for part in (f"{firing} firing", f"{len(alerts) - firing} resolved") if not part.startswith("0 ")
    )
    shown = [line for alert in alerts[:MAX_ALERTS] for line in _alert(alert)]
    more = len(alerts) - MAX_ALERTS + hidden if len(alerts) > MAX_ALERTS else hidden
    return joined(
        [
            f"{said.word('status').upper() or 'ALERT'}: {name} ({counts or 'no alerts'})",
            *shown,
            f"and {more} more" if 0 < more < MAX_HIDDEN else "",
            said.url("externalURL"),
        ]
    )


def _alert(alert: Payload) -> list[str]:
    annotations = alert.part("annotations")
    summary = annotations.first("summary", "title", "message", most=400)
    name = alert.word("labels", "alertname") or "alert"
    rest = sorted(map(str, annotations.keys() - {"summary", "title", "message"}))[:MAX_LABELS]
    since = alert.word("startsAt", most=40)
    return [
        f"- {alert.word('status') or 'firing'}: {summary or name}{f', since {since}' if since else ''}",
        f"  {_labels(alert.part('labels'))}" if alert.part("labels") else "",
        *(
            f"  {line}"
            for line in listed((f"{one_line(key, 60)}: {annotations.word(key, most=400)}" for key in rest), len(rest))
        ),
        f"  {found}" if (found := alert.url("generatorURL")) else "",
    ]


def _labels(labels: Payload) -> str:
    names = sorted(map(str, labels.keys()))
    shown = [f"{one_line(key, 60)}={labels.word(key, most=120)}" for key in names[:MAX_LABELS]]
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
