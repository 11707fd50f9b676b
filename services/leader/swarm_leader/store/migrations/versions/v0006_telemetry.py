"""Machines have a pool; figures of them by minute and hour; what happened to them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the tables."""
    op.add_column("fellows", sa.Column("pool", sa.Text, nullable=False, server_default="main"))
    op.create_table(
        "metric_rows",
        sa.Column("resolution_s", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("fellow_id", sa.Text, nullable=False),
        sa.Column("at_s", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("figures", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("resolution_s", "pool", "fellow_id", "at_s", name="pk_metric_rows"),
    )
    op.create_index("ix_metric_rows_at_s", "metric_rows", ["at_s"])
    counter = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "node_events",
        sa.Column("sequence", counter, nullable=False, autoincrement=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("fellow_id", sa.Text, nullable=False),
        sa.Column("fellow_name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_node_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_node_events_pool", "node_events", ["pool"])
