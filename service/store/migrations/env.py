"""Alembic's entry point: runs migrations on the connection passed in the configuration."""

from alembic import context

from service.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=False,
    transactional_ddl=True,
)
context.run_migrations()
