"""Alembic's entry: migrations run on the connection they are handed."""

from alembic import context

from service.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=False,
    transactional_ddl=True,
)
context.run_migrations()
