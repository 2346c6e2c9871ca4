"""One database, opened once: sessions that read or write, and the migrations that bring it up to date."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session

from lineside.remediation.store.models import Base

_MIGRATIONS = Path(__file__).parent / "migrations"


class StoreError(Exception):
    """The database cannot be opened; the text says what to do."""


class Store:
    """The incident history behind a SQLAlchemy URL. Usable from several threads; ``close`` it in the end.

    A SQLite file's folder is created. Raises ``StoreError`` for a URL that is none or cannot be reached.

    >>> store = Store("sqlite://")
    >>> store.upgrade(); store.head() == store.revision()
    True
    >>> store.close()
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):  # neither is shown: they may hold a password
            raise StoreError(
                "LINESIDE_DATABASE_URL is no SQLAlchemy URL; it looks like sqlite:///FILE or "
                "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
            ) from None
        self.where = parsed.render_as_string(hide_password=True)
        try:
            if parsed.get_backend_name() == "sqlite" and parsed.database not in (
                None,
                "",
                ":memory:",
            ):
                Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
            self.engine = create_engine(parsed)
        except (ArgumentError, ModuleNotFoundError, OSError) as error:
            raise StoreError(
                f"LINESIDE_DATABASE_URL={self.where} cannot be used: {error}"
            ) from error
        if parsed.get_backend_name() == "sqlite":
            _set_up_sqlite(self.engine)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view; nothing is written."""
        with Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction, committed at the end or rolled back by an exception.

        On SQLite it holds the write lock from its beginning, so what it read cannot change under it.
        """
        with Session(self.engine.execution_options(writes=True)) as session, session.begin():
            yield session

    def ping(self) -> bool:
        """Can the database be asked something now?"""
        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
        except OperationalError:
            return False
        return True

    def upgrade(self) -> None:
        """Bring the tables to this program's version. Raises ``StoreError`` where that cannot be."""
        with self._reached(), self.engine.execution_options(writes=True).begin() as connection:
            command.upgrade(self._alembic(connection), "head")

    def revision(self) -> str | None:
        """The version that the tables have; None: no tables. Raises ``StoreError``."""
        with self._reached(), self.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def head(self) -> str | None:
        """The version that this program expects."""
        return ScriptDirectory(str(_MIGRATIONS)).get_current_head()

    def differences(self) -> list[Any]:
        """What of the models the tables lack or have otherwise; empty when they agree."""
        with self.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            return list(compare_metadata(context, Base.metadata))

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            raise StoreError(f"{self.where} cannot be used: {error.orig}") from error

    def _alembic(self, connection: Connection) -> Config:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        return config


def _set_up_sqlite(engine: Engine) -> None:
    """WAL so that readers never wait, foreign keys on, and transactions as SQLAlchemy means them (the driver
    would begin them late and without the write lock)."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "foreign_keys=ON", "busy_timeout=10000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
