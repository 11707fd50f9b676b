"""Fellows, placements with their stages and log, and the row that is_writable overwrites."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "fellows",
        sa.Column("fellow_id", sa.Text, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("hardware", sa.LargeBinary, nullable=False),
        sa.Column("capabilities", sa.LargeBinary, nullable=False),
        sa.Column("joined_s", sa.Double, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("fellow_id", name="pk_fellows"),
        sa.UniqueConstraint("identity", name="uq_fellows_identity"),
    )
    _create_placements()
    op.create_table(
        "placement_events",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("placement_id", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_placement_events"),
        sa.ForeignKeyConstraint(
            ["placement_id"], ["placements.placement_id"], name="fk_placement_events_placement_id_placements"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_placement_events_placement_id", "placement_events", ["placement_id"])
    op.create_table(
        "write_probe",
        sa.Column("probe", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("probe", name="pk_write_probe"),
    )
    _make_append_only()


def _create_placements() -> None:
    op.create_table(
        "placements",
        sa.Column("placement_id", sa.Text, nullable=False),
        sa.Column("model_id", sa.Text, nullable=False),
        sa.Column("manifest_sha256", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("transport", sa.Text, nullable=False),
        sa.Column("dtype", sa.Text, nullable=False),
        sa.Column("context_tokens", sa.BigInteger, nullable=False),
        sa.Column("kv_tokens", sa.BigInteger, nullable=False),
        sa.Column("in_flight_max", sa.BigInteger, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("placement_id", name="pk_placements"),
    )
    op.create_index("ix_placements_model_id", "placements", ["model_id"])
    op.create_table(
        "placement_stages",
        sa.Column("placement_id", sa.Text, nullable=False),
        sa.Column("stage_index", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("fellow_id", sa.Text, nullable=False),
        sa.Column("layer_start", sa.Integer, nullable=False),
        sa.Column("layer_stop", sa.Integer, nullable=False),
        sa.Column("weight_bytes", sa.BigInteger, nullable=False),
        sa.Column("kv_bytes", sa.BigInteger, nullable=False),
        sa.Column("working_bytes", sa.BigInteger, nullable=False),
        sa.Column("free_bytes", sa.BigInteger, nullable=True),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("placement_id", "stage_index", name="pk_placement_stages"),
        sa.ForeignKeyConstraint(
            ["placement_id"], ["placements.placement_id"], name="fk_placement_stages_placement_id_placements"
        ),
    )


def _make_append_only() -> None:
    """The log of placements can be read and added to, by nobody changed."""
    if op.get_bind().dialect.name == "sqlite":
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER placement_events_no_{action.lower()} BEFORE {action} ON placement_events "
                "BEGIN SELECT RAISE(ABORT, 'placement_events is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION placement_events_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'placement_events is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER placement_events_append_only BEFORE UPDATE OR DELETE ON placement_events "
        "FOR EACH ROW EXECUTE FUNCTION placement_events_refuse()"
    )
