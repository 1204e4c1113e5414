"""The routes of the token service: discovery, keys, authorize, device code, token.

As documented for the Microsoft identity platform: PKCE for public clients, codes that work once, polls that are too
quick, refresh, consent and conditional access. The three hops of an Agent User are in `agents`.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from tests.graph.agents import exchange
from tests.graph.tokens import CODE_LIFE, DEVICE_LIFE, Answer, Grant, SignIn, TokenRefusal, Tokens
from tests.graph.world import Json

DEVICE_GRANTS: Final = ("urn:ietf:params:oauth:grant-type:device_code", "device_code")
_POST_PAGE: Final = """<html><body><form method="POST" action="{action}">{fields}
<noscript><input type="submit" value="Continue"></noscript></form></body></html>"""


async def serve_tokens(tokens: Tokens, request: Request) -> Response:
    """Answer one request to the token service."""
    try:
        return await _answer(tokens, request)
    except TokenRefusal as refusal:
        return JSONResponse(_refused(tokens, refusal), refusal.status)


async def _answer(tokens: Tokens, request: Request) -> Response:
    tenant, _, rest = request.url.path.lstrip("/").partition("/")
    if tenant not in {tokens.world.tenant, "common", "organizations"}:
        raise TokenRefusal("invalid_tenant", 90002, f"Tenant '{tenant}' not found. Check that it is the right one.")
    if (request.method, rest) == ("GET", "oauth2/v2.0/authorize"):
        return _authorize(tokens, dict(request.query_params))
    match request.method, rest:
        case "GET", "v2.0/.well-known/openid-configuration":
            body = _configuration(tokens, tenant)
        case "POST", "oauth2/v2.0/devicecode":
            body = _device(tokens, await _form(request))
        case "POST", "oauth2/v2.0/token":
            body = _token(tokens, await _form(request))
        case _:
            return Response(status_code=404)
    return JSONResponse(body, headers={"Cache-Control": "no-store"})


async def _form(request: Request) -> dict[str, str]:
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise TokenRefusal("invalid_request", 900144, "The request body must be form-encoded.")
    return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))


def _refused(tokens: Tokens, refusal: TokenRefusal) -> Json:
    trace, correlation = tokens.world.new_id(), tokens.world.new_id()
    at = f"{tokens.world.clock.now():%Y-%m-%d %H:%M:%S}Z"
    ids = f"Trace ID: {trace} Correlation ID: {correlation} Timestamp: {at}"
    return {
        "error": refusal.error,
        "error_description": f"AADSTS{refusal.number}: {refusal.message} {ids}",
        "error_codes": [refusal.number],
        "timestamp": at,
        "trace_id": trace,
        "correlation_id": correlation,
        "error_uri": f"{tokens.origin}/error?code={refusal.number}",
        **refusal.more,
    }


def _configuration(tokens: Tokens, tenant: str) -> Json:
    base = f"{tokens.origin}/{tenant}"
    return {
        "issuer": tokens.issuer,
        "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
        "token_endpoint": f"{base}/oauth2/v2.0/token",
        "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
        "jwks_uri": f"{base}/discovery/v2.0/keys",
        "response_modes_supported": ["query", "fragment", "form_post"],
        "response_types_supported": ["code"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "subject_types_supported": ["pairwise"],
    }


def _known_client(tokens: Tokens, asked: Mapping[str, str]) -> str:
    if asked.get("client_id") != tokens.client_id:
        message = f"Application with identifier '{asked.get('client_id', '')}' was not found in the directory."
        raise TokenRefusal("unauthorized_client", 700016, message)
    return tokens.client_id


def _is_loopback(uri: str) -> bool:
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1"}


def _authorize(tokens: Tokens, asked: Mapping[str, str]) -> Response:
    _known_client(tokens, asked)
    redirect = asked.get("redirect_uri", "")
    if not _is_loopback(redirect):
        raise TokenRefusal("invalid_request", 50011, f"The redirect URI '{redirect}' is not one of the application's.")
    if tokens.state.answer is Answer.WAITS:
        return HTMLResponse("<html><body>Sign in</body></html>")
    try:
        given = {"code": _code(tokens, asked)}
    except TokenRefusal as refusal:
        shown = _refused(tokens, refusal)
        given = {name: str(shown[name]) for name in ("error", "error_description", "error_uri")}
    given |= {"state": asked["state"]} if "state" in asked else {}
    if asked.get("response_mode") == "form_post":
        fields = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in given.items()
        )
        return HTMLResponse(_POST_PAGE.format(action=html.escape(redirect), fields=fields))
    return RedirectResponse(f"{redirect}{'&' if '?' in redirect else '?'}{urlencode(given)}", 302)


def _code(tokens: Tokens, asked: Mapping[str, str]) -> str:
    if asked.get("response_type") != "code":
        raise TokenRefusal("unsupported_response_type", 700054, "The response_type must be 'code'.")
    if asked.get("code_challenge_method") != "S256" or not asked.get("code_challenge"):
        message = "Proof Key for Code Exchange is required for cross-origin authorization code redemption."
        raise TokenRefusal("invalid_request", 9002325, message)
    if tokens.state.answer is Answer.DECLINES:
        raise TokenRefusal("access_denied", 65004, "User declined to consent to access the app.")
    scopes = tokens.resolve_scopes(asked.get("scope", ""))
    tokens.check_policy(scopes, is_interactive=True)
    started = SignIn(tokens.client_id, scopes, tokens.world.clock.now())
    started.redirect_uri, started.challenge = asked["redirect_uri"], asked["code_challenge"]
    started.nonce = asked.get("nonce", "")
    code = f"1.{tokens.world.new_id()}"
    tokens.codes[code] = started
    return code


def _device(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    _known_client(tokens, asked)
    user_code = tokens.world.new_id()[:8].upper()
    device_code = tokens.world.new_id() + tokens.world.new_id()
    scopes = tokens.resolve_scopes(asked.get("scope", ""))
    tokens.devices[device_code] = SignIn(tokens.client_id, scopes, tokens.world.clock.now(), user_code)
    page = f"{tokens.origin}/devicelogin"
    return {
        "user_code": user_code,
        "device_code": device_code,
        "verification_uri": page,
        "expires_in": int(DEVICE_LIFE.total_seconds()),
        "interval": tokens.state.device_interval,
        "message": f"To sign in, open the page {page} in a browser and enter the code {user_code}.",
    }


def _token(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    kind = asked.get("grant_type", "")
    if kind in {"client_credentials", "user_fic"}:
        return exchange(tokens, asked)
    _known_client(tokens, asked)
    if kind == "authorization_code":
        started = _redeem_code(tokens, asked)
    elif kind in DEVICE_GRANTS:
        started = _redeem_device(tokens, asked)
    elif kind == "refresh_token":
        return _refresh(tokens, asked)
    else:
        raise TokenRefusal("unsupported_grant_type", 70003, f"The app requested an unsupported grant type '{kind}'.")
    grant = tokens.grant_for(started.scopes)
    return tokens.issue(grant, nonce=started.nonce, wants_client_info="client_info" in asked)


def _redeem_code(tokens: Tokens, asked: Mapping[str, str]) -> SignIn:
    started = tokens.codes.pop(asked.get("code", ""), None)
    if started is None:
        raise TokenRefusal("invalid_grant", 54005, "OAuth2 Authorization code was already redeemed or is not known.")
    if tokens.world.clock.now() - started.started > CODE_LIFE:
        raise TokenRefusal("invalid_grant", 70008, "The provided authorization code has expired.")
    if asked.get("redirect_uri") != started.redirect_uri:
        raise TokenRefusal("invalid_client", 500112, "The reply address does not match the one of the request.")
    digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
    if base64.urlsafe_b64encode(digest).decode().rstrip("=") != started.challenge:
        raise TokenRefusal("invalid_grant", 501481, "The Code_Verifier does not match the code_challenge.")
    return started


def _redeem_device(tokens: Tokens, asked: Mapping[str, str]) -> SignIn:
    code, now = asked.get("device_code", ""), tokens.world.clock.now()
    started = tokens.devices.get(code)
    if started is None:
        raise TokenRefusal("bad_verification_code", 70018, "The device code was not recognised.")
    if now - started.started > DEVICE_LIFE:
        raise TokenRefusal("expired_token", 70020, "The device code has expired.")
    last, started.last_poll = started.last_poll, now
    if last is not None and (now - last).total_seconds() < tokens.state.device_interval - 1:
        raise TokenRefusal("slow_down", 70017, "Too many polls: wait longer between them.")
    if tokens.state.answer is Answer.WAITS:
        raise TokenRefusal("authorization_pending", 70016, "The user has not yet finished signing in.")
    del tokens.devices[code]
    if tokens.state.answer is Answer.DECLINES:
        raise TokenRefusal("authorization_declined", 70019, "The end user denied the authorization request.")
    tokens.check_policy(started.scopes, is_interactive=True)
    return started


def _refresh(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    token = asked.get("refresh_token", "")
    held = tokens.refresh.get(token)
    if held is None:
        raise TokenRefusal("invalid_grant", 9002313, "Invalid request: the refresh token is malformed or not known.")
    if token in tokens.revoked:
        message = "The provided grant has expired due to it being revoked; a fresh auth token is needed."
        raise TokenRefusal("invalid_grant", 50173, message, suberror="bad_token")
    scopes = tokens.resolve_scopes(asked.get("scope", "")) or held.scopes
    tokens.check_policy(scopes, is_interactive=False)
    if tokens.state.ends_used_refresh_tokens:
        tokens.revoked.add(token)
    grant = Grant(held.user, held.client_id, scopes, held.expires, claims=asked.get("claims", ""))
    return tokens.issue(grant, wants_client_info="client_info" in asked)
