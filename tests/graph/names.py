"""Every property name that the documented samples hold, by the resource that they are about.

The service may say nothing that the documentation does not: a test walks each body and looks its names up here.
The names come from the request and response samples of the public Graph reference (v1.0): list chats, list and get
messages, send and update a message, list members; list, get, reply to and delta of mail; errors; change notifications.
"""

from __future__ import annotations

from typing import Final

_ENVELOPE: Final = (
    "@odata.context @odata.count @odata.nextLink @odata.deltaLink @odata.type @odata.etag @odata.id value"
)

_CHAT: Final = """
    application applicationIdentityType body chatType content contentType createdDateTime device displayName email
    eventDetail from id initiator isDeleted isHidden isHiddenForAllMembers lastMessagePreview lastMessageReadDateTime
    lastUpdatedDateTime members messageType onlineMeetingInfo roles tenantId topic user userId userIdentityType
    viewpoint visibleHistoryStartDateTime webUrl
"""
_CHAT_MESSAGE: Final = """
    application applicationIdentityType attachments body channelIdentity chatDisplayName chatId content contentType
    contentUrl conversation createdDateTime deletedDateTime device displayName etag eventDetail from id importance
    initiator lastEditedDateTime lastModifiedDateTime locale mentionText mentioned mentions messageHistory messageType
    name policyViolation reactions replyToId subject summary tenantId thumbnailUrl user userIdentityType webUrl
"""
_MESSAGE: Final = """
    @removed address bccRecipients body bodyPreview categories ccRecipients changeKey content contentType conversationId
    createdDateTime emailAddress flag flagStatus from hasAttachments id importance inferenceClassification
    internetMessageHeaders internetMessageId isDeliveryReceiptRequested isDraft isRead isReadReceiptRequested
    lastModifiedDateTime name parentFolderId reason receivedDateTime replyTo sender sentDateTime subject toRecipients
    uniqueBody webLink
"""
_SUBSCRIPTION: Final = """
    applicationId changeType clientState creatorId expirationDateTime id latestSupportedTlsVersion
    lifecycleNotificationUrl notificationContentType notificationUrl resource
"""
_NOTIFICATION: Final = """
    changeType clientState id lifecycleEvent resource resourceData subscriptionExpirationDateTime subscriptionId
    tenantId
"""
# The reference shows the first ones; published error reports show that every answer also repeats the client's id.
_ERROR: Final = "code date details error innerError message request-id client-request-id"
_USER: Final = """
    businessPhones displayName givenName id jobTitle mail mobilePhone officeLocation preferredLanguage surname
    userPrincipalName
"""


def _names(text: str) -> frozenset[str]:
    return frozenset((_ENVELOPE + " " + text).split())


CHAT: Final = _names(_CHAT)
CHAT_MESSAGE: Final = _names(_CHAT_MESSAGE)
MESSAGE: Final = _names(_MESSAGE)
SUBSCRIPTION: Final = _names(_SUBSCRIPTION)
NOTIFICATION: Final = _names(_NOTIFICATION)
ERROR: Final = _names(_ERROR)
USER: Final = _names(_USER)


def strangers(body: object, known: frozenset[str]) -> set[str]:
    """The property names in a body, at any depth, that are not known."""
    if isinstance(body, dict):
        inner = set[str]().union(*(strangers(value, known) for value in body.values()))
        return {str(name) for name in body if name not in known} | inner
    if isinstance(body, list):
        return set[str]().union(*(strangers(value, known) for value in body))
    return set()
