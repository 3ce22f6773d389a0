"""The database of the index: its address, its connections, and transactions of which one writes at a time."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rollout_tasks.errors import UserError
from rollout_tasks.training.index.tables import FORMAT, formats, metadata
from rollout_tasks.unicode_text import one_line

_LOOKS = "must look like sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME"
_ESCAPES = "in a password, write # as %23, / as %2F, ? as %3F, @ as %40"
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
_INSTALL = {"psycopg": "uv pip install 'psycopg[binary]'", "pymysql": "uv pip install pymysql"}
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 60
"""The longest wait for another writer: one holds the lock for less than a second."""
_ANSWER_SECONDS = 120
"""The longest wait for an answer."""
_MAKING_SECONDS = 30.0
_LONGEST_MESSAGE = 300


class Database:
    """An index's database; its tables are made if it has none. A forked process makes connections of its own."""

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Connects once.

        Args:
            url: As in ``sqlite:///FILE``; no message contains its password.
            must_exist: Makes no file.

        Raises:
            UserError: The address is wrong, a driver is missing, the database does not answer, has other tables, or there is no
                file.
        """
        self._url = _checked(url)
        if must_exist and self._url.drivername == "sqlite" and not Path(str(self._url.database)).exists():
            raise UserError(f"there is no index {self._url.database}: rollouts index add RUN makes it")
        self._engine = _engine(self._url)
        _ENGINES.add(self._engine)
        weakref.finalize(self, self._engine.dispose)  # closes its connections
        with self._in_sentences():
            found = _format(self._engine)
            if found is None:
                _make(self._engine, metadata)
        if found not in {None, FORMAT}:
            raise UserError(f"index {self}: its tables have the format {found}; this version knows {FORMAT}")

    def __str__(self) -> str:
        plain = self._url.set(drivername=self._url.get_backend_name(), query={})  # a query may have a password, too
        return plain.render_as_string(hide_password=True)

    def make(self, tables: MetaData) -> None:
        """Makes more tables, where they are missing.

        Raises:
            UserError: The database does not answer, or refuses.
        """
        with self._in_sentences():
            _make(self._engine, tables)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that changes nothing.

        Raises:
            UserError: The database does not answer, or refuses.
        """
        with self._in_sentences(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that nobody else writes beside: all of it happens, or nothing.

        Raises:
            UserError: The database does not answer, refuses, or another writer took too long.
        """
        engine = self._engine.execution_options(writes=True)
        with self._in_sentences(), engine.begin() as connection:
            connection.execute(select(formats.c.id).with_for_update()).one()
            yield connection

    @contextmanager
    def _in_sentences(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            said = one_line(str(error.orig.args[-1] if error.orig and error.orig.args else error.orig))
            raise UserError(f"index {self}: {said[:_LONGEST_MESSAGE]}") from None
        except SQLAlchemyError as error:
            raise UserError(f"index {self}: {one_line(str(error))[:_LONGEST_MESSAGE]}") from None


def _checked(text: str) -> URL:
    """Returns an address with its driver.

    Raises:
        UserError: It is none; the message does not repeat it.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UserError(f"the index's address {_LOOKS}; {_ESCAPES}") from None
    kind, _, driver = url.drivername.partition("+")
    if kind == "sqlite" and not driver:
        if not url.database or url.database == ":memory:":
            raise UserError("the index's address must name a file, as in sqlite:///results/index.sqlite")
        return url
    if kind not in _DRIVERS or driver not in {"", _DRIVERS[kind]} or not url.host or not url.database:
        raise UserError(f"the index's address {_LOOKS}; {_ESCAPES}")
    driver = _DRIVERS[kind]
    try:
        import_module(driver)
    except ImportError as error:
        raise UserError(f"an index at {kind}:// needs the package {driver}: {_INSTALL[driver]}") from error
    if kind == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    return url.set(drivername="mysql+pymysql")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the index's address: {folder} cannot be made: {error.strerror}") from error


def _engine(url: URL) -> Engine:
    if url.drivername == "sqlite":
        _make_folder(Path(str(url.database)).parent)
        arguments: dict[str, Any] = {"timeout": _LOCK_SECONDS}
        engine = create_engine(url, connect_args=arguments, poolclass=NullPool, hide_parameters=True)
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if url.drivername.startswith("postgresql"):
        options = f"-c lock_timeout={_LOCK_SECONDS}s -c statement_timeout={_ANSWER_SECONDS}s"
        arguments = {"connect_timeout": _CONNECT_SECONDS, "options": options}
    else:
        arguments = {
            "charset": "utf8mb4",
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _ANSWER_SECONDS,
            "write_timeout": _ANSWER_SECONDS,
            "init_command": f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}",
        }
    return create_engine(
        url,
        connect_args=arguments,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=1,  # kept open: to log in takes about as long as to ask
        pool_pre_ping=True,
    )


_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()
"""Those of this process."""


def _forget_connections() -> None:
    """Has a forked process leave the connections of the other one alone."""
    for inherited in list(_ENGINES):
        inherited.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


def _leave_transactions_to_us(connection: Any, _record: Any) -> None:
    connection.isolation_level = None


def _begin_sqlite(connection: Connection) -> None:
    """Begins with the writer's lock, where SQLite would take it at the first change, after a look at what others then change."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make(engine: Engine, tables: MetaData) -> None:
    """Makes the tables that are missing, also if several processes do so at once."""
    deadline = time.monotonic() + _MAKING_SECONDS
    while True:
        try:
            with engine.execution_options(writes=True).begin() as connection:
                tables.create_all(connection)
                if tables is metadata:  # last: it says that they are complete
                    connection.execute(insert(formats).values(id=1, format=FORMAT))
            return
        except DBAPIError:  # another process may have made one of them just now
            if _format(engine) is not None and tables is metadata:
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _format(engine: Engine) -> int | None:
    """Returns the format of an index's tables; None if it has none, or not all."""
    with engine.begin() as connection:
        if not inspect(connection).has_table(formats.name):
            return None
        return connection.execute(select(formats.c.format)).scalar()
