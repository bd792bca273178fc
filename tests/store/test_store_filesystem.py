"""Files appear whole or not at all, and a failure names the file and the remedy."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store_builders import run_with_steps

from phasepoint.core.errors import StoreError
from phasepoint.store import create_run, filesystem, open_run, open_shard
from phasepoint.store.filesystem import (
    claim_directory,
    create_file,
    delete_file,
    delete_temporaries,
    list_directory,
    open_location,
    read_file,
    write_file,
)


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_local_path_and_its_file_url_are_one_place(tmp_path: Path, slash: str):
    folder = tmp_path / "a b"
    plain = open_location(f"{folder}{slash}")
    url = open_location(f"file://{str(folder).replace(' ', '%20')}{slash}")
    assert plain == url
    assert plain.show("x") == f"{folder}/x"
    write_file(url, "sub/x", b"1")
    assert bytes(read_file(plain, "sub/x")) == b"1"


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str):
    if kind == "pipe":
        os.mkfifo(tmp_path / "x")
    else:
        (tmp_path / "x").symlink_to("/dev/zero")
    with pytest.raises(StoreError, match=r"x cannot be read: it is no regular file .*: put a copy of the file there"):
        read_file(open_location(tmp_path), "x")


def test_a_run_with_a_pipe_in_it_is_refused_or_read(tmp_path: Path):
    path = Path(run_with_steps(tmp_path))
    (path / "host=00000" / "steps" / "part-00000001.parquet").unlink()
    os.mkfifo(path / "host=00000" / "steps" / "part-00000001.parquet")
    run = open_run(path)
    with pytest.raises(StoreError, match=r"part-00000001\.parquet cannot be read"):
        run.table("steps")
    assert run.table("windows").num_rows == 0
    (path / "run.json").unlink()
    os.mkfifo(path / "run.json")
    with pytest.raises(StoreError, match=r"run\.json cannot be read"):
        open_run(path)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(StoreError, match=r"foo://x/y: cannot be opened as a URL .*s3://, gs:// or file://") as caught:
        open_location("foo://x/y")
    assert caught.value.exit_code == 3


def test_writing_replaces_and_leaves_nothing_else(tmp_path: Path):
    place = open_location(tmp_path)
    write_file(place, "d/x", b"old")
    write_file(place, "d/x", b"new")
    assert bytes(read_file(place, "d/x")) == b"new"
    assert files_below(tmp_path) == ["d/x"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: free space there"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EFBIG, "the file-size limit is reached"),
        (errno.EACCES, "permission denied: give this user access"),
        (errno.EROFS, "the file system is read-only: choose another directory"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failed_write_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
):
    place = open_location(tmp_path)
    write_file(place, "x", b"old")

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError) as caught:
        write_file(place, "x", b"new")
    assert str(caught.value).startswith(f"{tmp_path}/x cannot be written: ")
    assert remedy in str(caught.value)
    assert caught.value.exit_code == 3
    assert bytes(read_file(place, "x")) == b"old"
    assert files_below(tmp_path) == ["x"]


def test_a_path_through_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"file/sub/x cannot be written: .*is a file, not a directory"):
        write_file(open_location(tmp_path), "file/sub/x", b"1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=r"x cannot be written: permission denied"):
        write_file(open_location(tmp_path), "x", b"1")


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = run_with_steps(tmp_path)
    run = open_run(path)

    def deny(path: str) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(filesystem, "_read_local", deny)
    with pytest.raises(StoreError, match=r"part-00000000\.parquet cannot be read: permission denied: give this user"):
        run.table("steps")
    with pytest.raises(StoreError, match=r"run/run\.json cannot be read: permission denied: give this user access"):
        open_run(path)


def test_temporaries_are_not_listed_and_can_be_swept(tmp_path: Path):
    place = open_location(tmp_path)
    write_file(place, "b", b"12")
    write_file(place, "a/x", b"1")
    (tmp_path / f"{filesystem.TEMPORARY_PREFIX}b-1-0").write_bytes(b"half")
    assert [(e.name, e.size, e.is_dir) for e in list_directory(place)] == [("a", 0, True), ("b", 2, False)]
    delete_temporaries(place, "")
    assert files_below(tmp_path) == ["a/x", "b"]


def test_a_missing_directory_lists_nothing_and_a_missing_file_is_told(tmp_path: Path):
    place = open_location(tmp_path)
    assert list_directory(place, "none") == []
    delete_file(place, "none")
    with pytest.raises(FileNotFoundError):
        read_file(place, "none")


def test_of_many_creators_one_wins(tmp_path: Path):
    place = open_location(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda n: create_file(place, "x", b"%d" % n), range(40)))
    assert sum(created) == 1
    assert bytes(read_file(place, "x")) == b"%d" % created.index(True)
    assert files_below(tmp_path) == ["x"]


def test_of_many_claimants_one_gets_the_directory(tmp_path: Path):
    place = open_location(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda n: claim_directory(place, "d", "who", b"%d" % n), range(40)))
    assert sum(claimed) == 1
    assert bytes(read_file(place, "d/who")) == b"%d" % claimed.index(True)
    assert files_below(tmp_path) == ["d/who"]
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


@pytest.fixture
def without_links(monkeypatch):
    """A file system that has neither hard links nor fsync, as FUSE mounts of buckets."""

    def refuse(self, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(self))

    def cannot_sync(descriptor):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(os, "fsync", cannot_sync)


def test_without_hard_links_and_fsync_one_of_many_creates_a_file(tmp_path, without_links):
    location = open_location(tmp_path)
    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda i, n=number: create_file(location, f"file-{n}", f"{i}".encode()), range(8)))
        assert sum(made) == 1
        assert (tmp_path / f"file-{number}").read_text() == str(made.index(True))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"file-{number}" for number in range(20))


def test_a_claim_whose_maker_died_holds_nobody_up_for_long(tmp_path, without_links, monkeypatch):
    monkeypatch.setattr(filesystem, "_CLAIM_LIMIT_S", 0.1)
    (tmp_path / ".tmp-claim-file").touch()
    assert create_file(open_location(tmp_path), "file", b"late")
    assert (tmp_path / "file").read_bytes() == b"late"


def test_a_run_is_recorded_without_hard_links(tmp_path, without_links):
    writer = open_shard(create_run(tmp_path / "run"), 0, epoch_unix_ns=1)
    writer.close()
    assert create_run(tmp_path / "run") == str(tmp_path / "run")
    assert open_shard(tmp_path / "run", 0, epoch_unix_ns=2).shard == "host=00000.1"
