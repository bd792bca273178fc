"""SQL over a run: one view per table, read-only, shut off from files, the network and this process."""

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from phasepoint.core.errors import QueryError
from phasepoint.core.tables import TABLES
from phasepoint.store.reader import Run

if TYPE_CHECKING:
    import duckdb

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def run_sql(run: Run, query: str) -> pa.Table:
    """The result of one SELECT (or WITH, DESCRIBE, SHOW, SUMMARIZE) over the run's tables.

    Only the tables that the query names are read. Strings are VARCHAR, times and sums of them BIGINT picoseconds.

    Raises:
        QueryError: the query is wrong, is more than one statement, or does anything but read the run's tables.
        StoreError: a table cannot be read.

    Example:
        >>> from phasepoint.store import open_run
        >>> run_sql(open_run("runs/my-job"), "SELECT count(*) AS n FROM steps WHERE dur_ps > 1e11")["n"].to_pylist()
        [21]
    """
    import duckdb

    with duckdb.connect(":memory:", config=_CONFIG) as connection:
        try:
            _check_statement(connection, query)
            for name in _tables_of(connection, query):
                _add_view(connection, name, run.table(name))
            connection.execute("SET lock_configuration = true")
            return _sums_to_int64(connection.sql(query).to_arrow_table())
        except duckdb.Error as error:
            raise QueryError(f"{error}\n{_hint(query)}The tables are {', '.join(TABLES)}.") from error


def _check_statement(connection: "duckdb.DuckDBPyConnection", query: str) -> None:
    import duckdb

    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"expected one SQL statement, found {len(statements)}; give one SELECT")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        raise QueryError(f"{kind} is not allowed: a run is only read; give one SELECT. Query: {query.strip()}")


def _tables_of(connection: "duckdb.DuckDBPyConnection", query: str) -> list[str]:
    """The run's tables that a query names; all of them if it names none in plain sight, as SHOW TABLES does."""
    import duckdb

    try:
        named = {name.lower() for name in connection.get_table_names(query)}
    except duckdb.CatalogException:  # DuckDB 1.1 looks a described table up
        named = set()
    return [name for name in TABLES if name in named] if named else list(TABLES)


def _hint(query: str) -> str:
    """`window` is an SQL keyword and the name of a column."""
    if re.search(r'(?<![".\w])window(?![".\w])', query, re.IGNORECASE):
        return 'The column "window" must be written in double quotes, or with its table: ops.window.\n'
    return ""


def _add_view(connection: "duckdb.DuckDBPyConnection", name: str, table: pa.Table) -> None:
    """Register a table; repeating strings become VARCHAR, since an ENUM fails to compare with a text it lacks."""
    columns = ", ".join(
        f'CAST("{f.name}" AS VARCHAR) AS "{f.name}"' if pa.types.is_dictionary(f.type) else f'"{f.name}"'
        for f in table.schema
    )
    connection.from_arrow(table).project(columns).create_view(name)


def _sums_to_int64(table: pa.Table) -> pa.Table:
    """A sum of BIGINT is a HUGEINT, which Arrow shows as decimal(38, 0): back to int64 where it fits."""
    for index, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            try:
                table = table.set_column(index, column.name, table.column(index).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
