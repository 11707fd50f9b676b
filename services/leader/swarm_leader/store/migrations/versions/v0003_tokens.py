"""Tokens of people, tokens by which machines join, and the machines' own credentials. All as SHA-256."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Machines that joined before have no credential and get one when they come back."""
    op.add_column("fellows", sa.Column("credential_sha256", sa.Text, nullable=False, server_default=""))
    op.add_column("fellows", sa.Column("credential_confirmed", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("fellows", sa.Column("joined_by", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "api_tokens",
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("expires_s", sa.BigInteger, nullable=True),
        sa.Column("revoked_s", sa.BigInteger, nullable=True),
        sa.Column("last_used_s", sa.BigInteger, nullable=True),
        sa.Column("by_leader", sa.Boolean, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("token_id", name="pk_api_tokens"),
        sa.UniqueConstraint("digest", name="uq_api_tokens_digest"),
    )
    op.create_table(
        "join_tokens",
        sa.Column("join_token_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("expires_s", sa.BigInteger, nullable=False),
        sa.Column("uses_left", sa.BigInteger, nullable=True),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("revoked_s", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("join_token_id", name="pk_join_tokens"),
        sa.UniqueConstraint("digest", name="uq_join_tokens_digest"),
    )
