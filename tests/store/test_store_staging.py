from pathlib import Path

from store_builders import steps

from phasepoint.store import create_run, open_run, open_shard
from phasepoint.store.writer import discard_staging, is_vacant, new_staging, publish_shard


def staged(run: Path, *, n_steps: int, close: bool = True) -> str:
    staging = new_staging(run, 2)
    create_run(staging)
    writer = open_shard(staging, 2, epoch_unix_ns=7)
    writer.append("steps", steps(0, n_steps))
    writer.flush()
    if close:
        writer.close()
    return staging


def test_of_two_writers_of_one_shard_the_first_stays(tmp_path: Path):
    run = tmp_path / "run"
    first, second, dead = staged(run, n_steps=3), staged(run, n_steps=4), staged(run, n_steps=5, close=False)
    assert len({first, second, dead}) == 3
    publish_shard(run, first, 2)
    publish_shard(run, second, 2)
    create_run(run)
    assert open_run(run).table("steps")["step"].to_pylist() == [0, 1, 2]
    discard_staging(run, first)
    assert len(list((run / ".staging").iterdir())) == 2
    discard_staging(run)
    discard_staging(run)
    assert sorted(path.name for path in run.iterdir()) == ["host=00002", "run.json"]


def test_vacant_is_what_holds_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    vacant = {name: is_vacant(tmp_path / name) for name in ("nowhere", "empty", "file", "../" + tmp_path.name)}
    assert list(vacant.values()) == [True, True, False, False]
