"""SQL reads the run's tables and nothing else."""

from pathlib import Path

import pytest
from store_builders import STEP_PS, run_with_steps

from phasepoint.core.errors import QueryError
from phasepoint.core.tables import TABLES
from phasepoint.store import Run, open_run, run_sql


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(run_with_steps(tmp_path_factory.mktemp("sql")))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*) AS n, sum(dur_ps) AS s FROM steps", [{"n": 12, "s": 12 * STEP_PS}]),
        ("select kind, max(step) as last from Steps group by kind", [{"kind": "train", "last": 11}]),
        ("FROM steps SELECT step WHERE kind = 'no such kind'", []),
        ("WITH s AS (SELECT step FROM steps) SELECT min(step) AS m FROM s", [{"m": 0}]),
        ("SELECT s.step FROM main.steps s JOIN windows w ON s.step = w.first_step", []),
        ('SELECT "window" FROM ops UNION SELECT ops.window FROM ops', []),
        ("SELECT step FROM query_table('steps') ORDER BY step DESC LIMIT 1", [{"step": 11}]),
        ("SHOW TABLES", [{"name": name} for name in sorted(TABLES)]),
        ("SELECT host, attempt, step FROM steps LIMIT 1;", [{"host": 0, "attempt": 0, "step": 0}]),
    ],
)
def test_rows(run: Run, query: str, rows: list[dict[str, object]]):
    assert run_sql(run, query).to_pylist() == rows


def test_types_are_plain(run: Run):
    found = run_sql(run, "SELECT kind, dur_ps, sum(dur_ps) AS s FROM steps GROUP BY ALL").schema
    assert [str(field.type) for field in found] == ["string", "int64", "int64"]
    described = {r["column_name"]: r["column_type"] for r in run_sql(run, "DESCRIBE steps").to_pylist()}
    assert described["start_ps"] == "BIGINT"
    assert described["kind"] == "VARCHAR"


def test_a_sum_that_is_too_large_for_int64_stays_exact(run: Run):
    value = run_sql(run, "SELECT sum(dur_ps) * 10000000000000 AS s FROM steps").to_pylist()[0]["s"]
    assert int(value) == 12 * STEP_PS * 10**13


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_view(run: Run, name: str):
    assert run_sql(run, f"SELECT * FROM {name} LIMIT 0").schema.names == ["host", "attempt", *TABLES[name].schema.names]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM steps", '"nothing" not found'),
        ("SELECT * FROM stops", "stops does not exist"),
        ("SELECT window FROM ops", 'The column "window" must be written in double quotes'),
        ("SELECT * FROM run", "run does not exist"),
    ],
)
def test_a_wrong_query_says_why_and_what_there_is(run: Run, query: str, said: str):
    with pytest.raises(QueryError) as caught:
        run_sql(run, query)
    assert said in str(caught.value)
    assert "The tables are steps, windows, conversions, ops" in str(caught.value)
    assert caught.value.exit_code == 11


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("COPY steps TO '{file}'", "COPY"),
        ("COPY (SELECT 1) TO '{file}'", "COPY"),
        ("ATTACH '{file}'", "ATTACH"),
        ("EXPORT DATABASE '{file}'", "EXPORT"),
        ("INSTALL httpfs", "LOAD"),
        ("LOAD httpfs", "LOAD"),
        ("SET enable_external_access = true", "SET"),
        ("CREATE TABLE t AS SELECT 1", "CREATE"),
        ("INSERT INTO steps VALUES (1)", "INSERT"),
        ("DELETE FROM steps", "DELETE"),
        ("DROP VIEW steps", "DROP"),
        ("CALL pragma_version()", "CALL"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN"),
    ],
)
def test_nothing_but_reading_is_allowed(run: Run, tmp_path: Path, query: str, kind: str):
    with pytest.raises(QueryError, match=f"{kind} is not allowed: a run is only read; give one SELECT"):
        run_sql(run, query.format(file=tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM parquet_scan('{file}')",
        "SELECT * FROM glob('{file}*')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    ],
)
def test_files_and_the_network_are_out_of_reach(run: Run, tmp_path: Path, query: str):
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    with pytest.raises(QueryError, match=r"disabled (by|through) configuration|does not exist"):
        run_sql(run, query.format(file=file))


@pytest.mark.parametrize(("query", "count"), [("", 0), ("-- nothing", 0), ("SELECT 1; SELECT 2", 2)])
def test_one_statement_is_expected(run: Run, query: str, count: int):
    with pytest.raises(QueryError, match=f"expected one SQL statement, found {count}; give one SELECT"):
        run_sql(run, query)
