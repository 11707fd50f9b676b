"""Incidents: what was done about each fault of a placement. Machines say whether they are being drained."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No machine known before is being drained."""
    op.add_column("fellows", sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "incidents",
        sa.Column("incident_id", sa.Text, nullable=False),
        sa.Column("placement_id", sa.Text, nullable=False),
        sa.Column("model_id", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("opened_s", sa.Double, nullable=False),
        sa.Column("stages", sa.JSON, nullable=False),
        sa.Column("lost", sa.JSON, nullable=False),
        sa.Column("replacements", sa.JSON, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("log", sa.JSON, nullable=False),
        sa.Column("closed_s", sa.Double, nullable=True),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detected_ms", sa.Double, nullable=True),
        sa.Column("recovered_ms", sa.Double, nullable=True),
        sa.PrimaryKeyConstraint("incident_id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_opened_s", "incidents", ["opened_s"])
