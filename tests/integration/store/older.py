"""Takes a database back to an older schema, as the version of that time left it."""

from sqlalchemy.ext.asyncio import create_async_engine
from swarm_leader.store.address import parse_address

_UNDO = {
    "0005": ["ALTER TABLE fellows DROP COLUMN draining", "DROP TABLE incidents"],
    "0006": ["ALTER TABLE fellows DROP COLUMN pool", "DROP TABLE metric_rows", "DROP TABLE node_events"],
    "0004": [
        *(
            f"ALTER TABLE placements DROP COLUMN {one}"
            for one in (
                "quantization",
                "quantization_asked",
                "storage_dtype",
                "weights_model_id",
                "adapters",
                "codec",
                "predicted_tokens_per_s",
            )
        ),
        *(
            f"ALTER TABLE placement_stages DROP COLUMN {one}"
            for one in (
                "devices",
                "codec_in",
                "codec_out",
                "inner_codecs",
                "quantization",
                "weight_bytes_measured",
                "predicted_ms",
            )
        ),
    ],
    "0003": [
        *(
            f"ALTER TABLE fellows DROP COLUMN {one}"
            for one in ("credential_sha256", "credential_confirmed", "joined_by")
        ),
        "DROP TABLE api_tokens",
        "DROP TABLE join_tokens",
    ],
    "0002": ["ALTER TABLE placements DROP COLUMN batch_max"],
}


async def go_back(database_url: str, revision: str) -> None:
    """Undo every revision after this one; nothing may have the database open."""
    engine = create_async_engine(parse_address(database_url).url)
    async with engine.begin() as connection:
        for newer in sorted(_UNDO, reverse=True):
            for statement in _UNDO[newer] if newer > revision else ():
                await connection.exec_driver_sql(statement)
        await connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    await engine.dispose()
