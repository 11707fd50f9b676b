"""Placements say how many sessions a decode step takes; those made before have no cap."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("placements", sa.Column("batch_max", sa.BigInteger, nullable=False, server_default="0"))
