"""Placements say how weights are held: quantised, on which devices, with which adapters, coded how on the links.

Those made before are at full precision, on the device of the fellow's choice, with no adapter and no code.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    words = {"quantization": "none", "quantization_asked": "", "storage_dtype": "", "weights_model_id": "", "codec": ""}
    for name, usual in words.items():
        op.add_column("placements", sa.Column(name, sa.Text, nullable=False, server_default=usual))
    op.add_column("placements", sa.Column("adapters", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("placements", sa.Column("predicted_tokens_per_s", sa.Double, nullable=True))
    for name in ("codec_in", "codec_out", "quantization"):
        op.add_column("placement_stages", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in ("devices", "inner_codecs"):
        op.add_column("placement_stages", sa.Column(name, sa.JSON, nullable=False, server_default="[]"))
    op.add_column("placement_stages", sa.Column("weight_bytes_measured", sa.BigInteger, nullable=True))
    op.add_column("placement_stages", sa.Column("predicted_ms", sa.Double, nullable=True))
