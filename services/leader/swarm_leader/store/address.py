"""Database addresses as people write them, as SQLAlchemy needs them. Opens nothing."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from swarm_core.errors import BadRequest

_SQLITE = {"sqlite", "sqlite+aiosqlite"}
_POSTGRES = {"postgresql", "postgres", "postgresql+asyncpg"}


@dataclass(frozen=True)
class Address:
    """Where the database is. sqlite_file: the file, absolute; None on PostgreSQL."""

    url: URL
    sqlite_file: Path | None

    @property
    def is_sqlite(self) -> bool:
        """One file, one writer."""
        return self.sqlite_file is not None

    def __str__(self) -> str:
        """For people: never with the password."""
        return self.url.render_as_string(hide_password=True)


def parse_address(database_url: str) -> Address:
    """Read sqlite:///PATH or postgresql://USER@HOST/NAME.

    Raises BadRequest, never repeating a password, when it is neither or names no file.
    """
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        raise BadRequest(
            "the database URL cannot be read; write sqlite:///PATH or postgresql://USER@HOST/NAME"
        ) from None
    if url.drivername in _SQLITE:
        return _sqlite(url)
    if url.drivername in _POSTGRES:
        query = dict(url.query)
        if "sslmode" in query:  # libpq's word; asyncpg's is ssl, with the same values
            query["ssl"] = query.pop("sslmode")
        return Address(url=url.set(drivername="postgresql+asyncpg", query=query), sqlite_file=None)
    raise BadRequest(
        f"the database {url.drivername!r} is not supported; use sqlite:///PATH or postgresql://USER@HOST/NAME",
        field="database_url",
    )


def _sqlite(url: URL) -> Address:
    if not url.database or url.database == ":memory:":
        raise BadRequest(
            "a database in memory would forget the fleet at every restart; write sqlite:///PATH", field="database_url"
        )
    path = Path(url.database).expanduser().absolute()
    return Address(url=url.set(drivername="sqlite+aiosqlite", database=str(path)), sqlite_file=path)
