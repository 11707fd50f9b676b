"""Insert or replace rows, the same on both engines."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert_or_replace(dialect_name: str, table: sa.Table, row: dict[str, Any]) -> Any:
    """The statement that writes `row` over the one with the same primary key, or as a new one."""
    insert = sqlite.insert(table) if dialect_name == "sqlite" else postgresql.insert(table)
    keys = {column.name for column in table.primary_key}
    replaced = {name: insert.excluded[name] for name in row if name not in keys}
    return insert.values(row).on_conflict_do_update(index_elements=sorted(keys), set_=replaced)


def insert_or_replace_many(dialect_name: str, table: sa.Table) -> Any:
    """The same for a list of rows that each have every column."""
    insert = sqlite.insert(table) if dialect_name == "sqlite" else postgresql.insert(table)
    keys = {column.name for column in table.primary_key}
    replaced = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    return insert.on_conflict_do_update(index_elements=sorted(keys), set_=replaced)


def clean_text(text: str) -> str:
    """Text both engines take: PostgreSQL has no NUL, and what a machine reports may hold one."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
