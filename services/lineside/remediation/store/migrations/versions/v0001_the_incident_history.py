"""The incident history: jobs, health, faults, incidents, plans, outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "health_samples",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("step_s", sa.Double(), nullable=True),
        sa.Column("slowdown", sa.Double(), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "at_ns", name=op.f("pk_health_samples")),
    )
    op.create_index(
        "ix_health_samples_received_ns", "health_samples", ["received_ns"], unique=False
    )

    op.create_table(
        "incidents",
        sa.Column("incident_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("suspects", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("onset_ns", sa.BigInteger(), nullable=False),
        sa.Column("detected_ns", sa.BigInteger(), nullable=False),
        sa.Column("opened_ns", sa.BigInteger(), nullable=False),
        sa.Column("since_ns", sa.BigInteger(), nullable=False),
        sa.Column("reopened_ns", sa.BigInteger(), nullable=True),
        sa.Column("relieved_ns", sa.BigInteger(), nullable=True),
        sa.Column("mitigated_ns", sa.BigInteger(), nullable=True),
        sa.Column("resolved_ns", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.String(length=32), nullable=True),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("impact_s", sa.Double(), nullable=False),
        sa.Column("impact_from_ns", sa.BigInteger(), nullable=False),
        sa.Column("impact_step", sa.BigInteger(), nullable=False),
        sa.Column("healthy_step_s", sa.Double(), nullable=True),
        sa.Column("faulty_step_s", sa.Double(), nullable=True),
        sa.Column("effect", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("incident_id", name=op.f("pk_incidents")),
    )
    op.create_index("ix_incidents_job_id", "incidents", ["job_id"], unique=False)
    op.create_index(
        "ix_incidents_opened_ns_incident_id",
        "incidents",
        ["opened_ns", "incident_id"],
        unique=False,
    )
    op.create_index("ix_incidents_run_id", "incidents", ["run_id"], unique=False)
    op.create_index("ix_incidents_state", "incidents", ["state"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=True),
        sa.Column("first_seen_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("newest_revision", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_job_id", "jobs", ["job_id"], unique=False)

    op.create_table(
        "outbox",
        sa.Column(
            "outbox_id",
            sa.BigInteger().with_variant(sa.INTEGER(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("partition", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("headers", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("sent_ns", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("outbox_id", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_sent_ns", "outbox", ["sent_ns"], unique=False)
    op.create_index("ix_outbox_topic_outbox_id", "outbox", ["topic", "outbox_id"], unique=False)

    op.create_table(
        "plan_statuses",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("machine_id", sa.String(length=255), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "run_id", "revision", "machine_id", "rank", "state", name=op.f("pk_plan_statuses")
        ),
    )
    op.create_table(
        "faults",
        sa.Column("fault_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("incident_id", sa.String(length=36), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("detector", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("onset_ns", sa.BigInteger(), nullable=False),
        sa.Column("detected_ns", sa.BigInteger(), nullable=False),
        sa.Column("relieved_ns", sa.BigInteger(), nullable=True),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incidents.incident_id"], name=op.f("fk_faults_incident_id")
        ),
        sa.PrimaryKeyConstraint("fault_id", name=op.f("pk_faults")),
    )
    op.create_index("ix_faults_incident_id", "faults", ["incident_id"], unique=False)
    op.create_index("ix_faults_job_id", "faults", ["job_id"], unique=False)
    op.create_index("ix_faults_run_id", "faults", ["run_id"], unique=False)

    op.create_table(
        "incident_transitions",
        sa.Column("incident_id", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.String(length=16), nullable=True),
        sa.Column("to_state", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.incident_id"],
            name=op.f("fk_incident_transitions_incident_id"),
        ),
        sa.PrimaryKeyConstraint("incident_id", "sequence", name=op.f("pk_incident_transitions")),
    )
    op.create_table(
        "plans",
        sa.Column("plan_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column("incident_id", sa.String(length=36), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("micro_batch_plan", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("predicted_step_s", sa.Double(), nullable=True),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("valid_until_ns", sa.BigInteger(), nullable=True),
        sa.Column("settled_ns", sa.BigInteger(), nullable=True),
        sa.Column("applied_step", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incidents.incident_id"], name=op.f("fk_plans_incident_id")
        ),
        sa.PrimaryKeyConstraint("plan_id", name=op.f("pk_plans")),
        sa.UniqueConstraint("run_id", "revision", name=op.f("uq_plans_run_id_revision")),
    )
    op.create_index("ix_plans_incident_id", "plans", ["incident_id"], unique=False)
    op.create_index("ix_plans_job_id", "plans", ["job_id"], unique=False)
    op.create_index("ix_plans_progress", "plans", ["progress"], unique=False)

    op.create_table(
        "fault_events",
        sa.Column("fault_id", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["fault_id"], ["faults.fault_id"], name=op.f("fk_fault_events_fault_id")
        ),
        sa.PrimaryKeyConstraint("fault_id", "sequence", name=op.f("pk_fault_events")),
    )


def downgrade() -> None:
    op.drop_table("fault_events")
    op.drop_index("ix_plans_progress", "plans")
    op.drop_index("ix_plans_job_id", "plans")
    op.drop_index("ix_plans_incident_id", "plans")

    op.drop_table("plans")
    op.drop_table("incident_transitions")
    op.drop_index("ix_faults_run_id", "faults")
    op.drop_index("ix_faults_job_id", "faults")
    op.drop_index("ix_faults_incident_id", "faults")

    op.drop_table("faults")
    op.drop_table("plan_statuses")
    op.drop_index("ix_outbox_topic_outbox_id", "outbox")
    op.drop_index("ix_outbox_sent_ns", "outbox")

    op.drop_table("outbox")
    op.drop_index("ix_jobs_job_id", "jobs")

    op.drop_table("jobs")
    op.drop_index("ix_incidents_state", "incidents")
    op.drop_index("ix_incidents_run_id", "incidents")
    op.drop_index("ix_incidents_opened_ns_incident_id", "incidents")
    op.drop_index("ix_incidents_job_id", "incidents")

    op.drop_table("incidents")
    op.drop_index("ix_health_samples_received_ns", "health_samples")

    op.drop_table("health_samples")
