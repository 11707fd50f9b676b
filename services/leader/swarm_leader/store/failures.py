"""Database failures as SwarmErrors. Bugs of ours pass through untouched."""

import sqlite3

from sqlalchemy import exc
from swarm_core.errors import Conflict, DiskFull, SwarmError, Unavailable

_DISK_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}
_DISK_STATES = {"25006", "53100", "58030"}  # PostgreSQL: read_only_sql_transaction, disk_full, io_error


def swarm_error_of(error: Exception) -> SwarmError | None:
    """The fact behind a database error; None when it is not the world's fault but a bug."""
    if isinstance(error, exc.IntegrityError):
        return Conflict(f"the database refused the write: {describe(error)}")
    if isinstance(error, exc.DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        if (code is not None and code & 0xFF in _DISK_CODES) or getattr(error.orig, "sqlstate", None) in _DISK_STATES:
            return DiskFull(f"the leader's database cannot be used: {describe(error)}")
        if isinstance(error, exc.OperationalError | exc.InterfaceError) or error.connection_invalidated:
            return Unavailable(f"the leader's database does not answer: {describe(error)}")
        return None
    if isinstance(error, exc.TimeoutError | OSError | TimeoutError):
        return Unavailable(f"the leader's database does not answer: {describe(error)}")
    return None


def describe(error: Exception) -> str:
    """One line for people: no SQL, no parameters."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    words = str(cause).splitlines()
    return words[0] if words else type(cause).__name__
