"""Requests for evidence and the replies to them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("fault_id", sa.String(length=64), nullable=True),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("ranks", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("parameters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("max_pause_s", sa.Double(), nullable=True),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_requests")),
    )
    for column in ("fault_id", "job_id", "run_id"):
        op.create_index(f"ix_requests_{column}", "requests", [column], unique=False)
    op.create_table(
        "replies",
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("machine_id", sa.String(length=255), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", "machine_id", "rank", name=op.f("pk_replies")),
    )
    op.create_index("ix_replies_received_ns", "replies", ["received_ns"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_replies_received_ns", "replies")
    op.drop_table("replies")
    for column in ("run_id", "job_id", "fault_id"):
        op.drop_index(f"ix_requests_{column}", "requests")
    op.drop_table("requests")
