"""Tokens: what lets programs and other machines in, what each may do, and which machine it is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harken.errors import Conflict, Forbidden, NotFound
from harken.model import timestamp
from harken.store.contract.tokens import Token, TokenScope
from harken.store.sql.transaction import (
    Readers,
    SqlConnection,
    Transaction,
    encode_json,
    from_micros,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

COLUMNS: Final = "id, name, kind, made_at, expires_at, revoked_at, used_at, used_from, bound_to, scope"
INSERT: Final = "INSERT INTO tokens (id, name, kind, made_at, expires_at, digest, scope) VALUES (?, ?, ?, ?, ?, ?, ?)"
IN_FORCE: Final = f"""
SELECT {COLUMNS} FROM tokens
WHERE name = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)
"""
BY_DIGEST: Final = f"SELECT {COLUMNS} FROM tokens WHERE digest = ?"
BY_ID: Final = f"SELECT {COLUMNS} FROM tokens WHERE id = ?"
ALL: Final = f"SELECT {COLUMNS} FROM tokens ORDER BY made_at, id"
RETIRE: Final = """
UPDATE tokens SET digest = 'ended ' || id WHERE digest = ? AND (revoked_at IS NOT NULL OR expires_at <= ?)
"""
USE: Final = "UPDATE tokens SET used_at = ?, used_from = ?, bound_to = ? WHERE id = ?"
REVOKE: Final = "UPDATE tokens SET revoked_at = ? WHERE id = ?"
NEW_ONE: Final = "Make a new one on the main machine: harken token new"


def add(tx: Transaction, token: Token, digest: bytes) -> Token:
    """Store a new token."""
    if tx.execute(IN_FORCE, (token.name, tx.now_micros)).fetchone():
        raise Conflict(
            f"There is a token {token.name!r} already.", f"Choose another name, or: harken token revoke {token.name}"
        )
    # Of a subject that an issuer vouches for, what stands for its secret is always the same.
    tx.execute(RETIRE, (digest.hex(), tx.now_micros))
    if find(tx.connection, digest) is not None:
        raise Conflict("There is a token for the same holder already.", "See it: harken token list")
    expires = optional_micros(token.expires_at)
    scope = _scope_json(token.scope)
    row = (token.id, token.name, token.kind, tx.now_micros, expires, digest.hex(), encode_json(scope) if scope else "")
    tx.execute(INSERT, row)
    until = None if token.expires_at is None else timestamp(token.expires_at)
    tx.note("token", {"token": token.name, "change": "made", "of": token.kind, "expires_at": until, **scope})
    return _stored(tx.connection, token.id)


def find(connection: SqlConnection, digest: bytes) -> Token | None:
    """Return the token with a hash."""
    row = connection.execute(BY_DIGEST, (digest.hex(),)).fetchone()
    return None if row is None else _token(row)


def use(tx: Transaction, identifier: str, machine: str, address: str) -> Token:
    """Note a use, and bind a token with its first."""
    token = _stored(tx.connection, identifier)
    if token.revoked_at is not None:
        raise Forbidden("This token was revoked.", NEW_ONE)
    if token.expires_at is not None and to_micros(token.expires_at) <= tx.now_micros:
        raise Forbidden("This token has expired.", NEW_ONE)
    if token.bound_to not in ("", machine):
        raise Forbidden("This token belongs to another machine.", NEW_ONE)
    tx.execute(USE, (tx.now_micros, address, machine, identifier))
    if machine and not token.bound_to:
        tx.note("token", {"token": token.name, "change": "bound", "machine": machine, "from": address})
    return _stored(tx.connection, identifier)


def every(connection: SqlConnection) -> list[Token]:
    """Return all tokens."""
    return [_token(row) for row in connection.execute(ALL)]


def revoke(tx: Transaction, name: str) -> Token:
    """End a token."""
    row = tx.execute(IN_FORCE, (name, tx.now_micros)).fetchone()
    if row is None:
        raise NotFound(f"There is no token {name[:80]!r}.", "See them: harken token list")
    tx.execute(REVOKE, (tx.now_micros, row[0]))
    tx.note("token", {"token": name, "change": "revoked"})
    return _stored(tx.connection, row[0])


def _stored(connection: SqlConnection, identifier: str) -> Token:
    row = connection.execute(BY_ID, (identifier,)).fetchone()
    if row is None:
        raise NotFound("There is no such token.", "See them: harken token list")
    return _token(row)


def _token(row: Sequence[Any]) -> Token:
    return Token(
        id=row[0],
        name=row[1],
        kind=row[2],
        made_at=from_micros(row[3]),
        expires_at=optional_moment(row[4]),
        revoked_at=optional_moment(row[5]),
        used_at=optional_moment(row[6]),
        used_from=row[7],
        bound_to=row[8],
        scope=msgspec.json.decode(row[9], type=TokenScope) if row[9] else None,
    )


def _scope_json(scope: TokenScope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {
        "may": sorted(scope.may),
        "mailboxes": list(scope.mailboxes),
        "consumer": scope.consumer,
        "trust": scope.trust.value if scope.trust else None,
    }


class SqlTokens:
    """The contract of `TokenStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def add(self, token: Token, digest: bytes) -> Token:
        """Store a new token."""
        return await self._writer.run(lambda tx: add(tx, token, digest))

    async def find(self, digest: bytes) -> Token | None:
        """Return the token with a hash."""
        return await self._readers.run(lambda db: find(db, digest))

    async def use(self, token: str, machine: str, address: str) -> Token:
        """Note a use, and bind a token with its first."""
        return await self._writer.run(lambda tx: use(tx, token, machine, address))

    async def list(self) -> list[Token]:
        """Return all tokens."""
        return await self._readers.run(every)

    async def revoke(self, name: str) -> Token:
        """End a token."""
        return await self._writer.run(lambda tx: revoke(tx, name))
