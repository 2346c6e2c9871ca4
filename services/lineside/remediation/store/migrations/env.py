"""Alembic's entry: migrates over the connection that the store hands it."""

from alembic import context

from lineside.remediation.store.models import Base

if hasattr(context, "config"):  # else the file is only imported, by a collector of tests
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=Base.metadata,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()
