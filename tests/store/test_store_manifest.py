"""run.json: what is written, which versions are read, and what is said where there is no run."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store_builders import new_run, run_with_steps

from phasepoint.core.errors import FormatVersionError, NotARunError, StoreError
from phasepoint.store import create_run, open_run, open_shard


def set_version(path: str, version: object) -> None:
    file = Path(path) / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": version, "colour": "new field"}))


def test_the_manifest_says_what_was_run(tmp_path: Path):
    path = create_run(
        tmp_path / "run",
        command=["python", "train.py"],
        frameworks={"jax": "0.10"},
        devices=["cpu:0"],
        git_commit="abc",
        created_unix_ns=7,
    )
    manifest = open_run(path).manifest
    assert manifest.format_version == "1.2"
    assert (manifest.tool, manifest.command) == ("phasepoint", ("python", "train.py"))
    assert (manifest.frameworks, manifest.devices) == ({"jax": "0.10"}, ("cpu:0",))
    assert (manifest.git_commit, manifest.created_unix_ns) == ("abc", 7)
    assert manifest.python
    assert manifest.created_on
    assert manifest.tool_version


def test_the_first_manifest_stays(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: create_run(tmp_path / "run", created_unix_ns=n), range(30)))
    first = open_run(tmp_path / "run").manifest.created_unix_ns
    create_run(tmp_path / "run", created_unix_ns=99)
    assert open_run(tmp_path / "run").manifest.created_unix_ns == first


def test_a_newer_minor_version_is_read(tmp_path: Path):
    path = run_with_steps(tmp_path)
    set_version(path, "1.7")
    assert open_run(path).manifest.format_version == "1.7"
    assert open_run(path).table("steps").num_rows == 12


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("2.0", "The run is newer: upgrade Phasepoint (pip install --upgrade phasepoint)"),
        (
            "0.9",
            "The run is older, and there is nothing that converts it: read it with the Phasepoint that wrote it "
            "(0.1.0), or record the job again",
        ),
    ],
)
def test_another_major_version_is_refused(tmp_path: Path, version: str, advice: str):
    path = new_run(tmp_path)
    set_version(path, version)
    for use in (open_run, create_run, lambda p: open_shard(p, 0, epoch_unix_ns=0)):
        with pytest.raises(FormatVersionError) as caught:
            use(path)
        assert str(caught.value) == (
            f"{path}/run.json: the run has format version {version}; this Phasepoint reads 1.x (it writes 1.2). "
            f"{advice}"
        )
        assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "broken manifest"),
        (b'{"format_version": "1.0"', "broken manifest"),
        (b'{"format_version": "1.0"}', "missing required field `tool`"),
        (b'{"format_version": 1}', "broken manifest"),
        (b'{"format_version": "one"}', "format_version is 'one'; expected MAJOR.MINOR"),
        (b'{"tool": "\xff"}', "broken manifest"),
        (b"[]", "broken manifest"),
        (b'{"a": %s' % (b"[" * 20_000), "broken manifest: maximum recursion depth"),
        (b'{"format_version": "%s.0"}' % (b"1" * 5000), "expected MAJOR.MINOR"),
    ],
)
def test_a_broken_manifest_is_named(tmp_path: Path, content: bytes, said: str):
    path = new_run(tmp_path)
    (Path(path) / "run.json").write_bytes(content)
    with pytest.raises(StoreError) as caught:
        open_run(path)
    assert type(caught.value) is StoreError
    assert f"{path}/run.json: " in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.exit_code == 3


def test_what_is_no_run_says_what_is_there_instead(tmp_path: Path):
    path = run_with_steps(tmp_path)
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    for name in "abcdef":
        (other / name).write_text("")
    expected = {
        tmp_path / "none": "no such directory; record a run into it with `phasepoint record --out",
        tmp_path / "empty": "the directory is empty; expected a run",
        other / "a": "this is a file; expected the directory of a run",
        other: "no run here: run.json is missing; found a, b, c, d, e, …",
        tmp_path: f"no run here, but there is one below it: {path}",
        Path(path) / "host=00000": "this is one shard of a run; give the directory above it",
    }
    for place, said in expected.items():
        with pytest.raises(NotARunError) as caught:
            open_run(place)
        assert str(caught.value).startswith(f"{place}: {said}")
        assert caught.value.exit_code == 4


def test_a_shard_needs_a_run(tmp_path: Path):
    with pytest.raises(NotARunError, match="no such directory"):
        open_shard(tmp_path / "none", 0, epoch_unix_ns=0)
