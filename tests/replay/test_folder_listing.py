"""Which checkpoints are gone, by the listing of their folders."""

from phasepoint.replay.checkpoints import MOST_FOLDERS, find_gone


def test_what_its_folder_does_not_list_is_gone(tmp_path):
    paths = [str(tmp_path / f"step-{i}") for i in range(20)]
    for path in paths[15:]:
        (tmp_path / path).mkdir()
    assert find_gone(paths) == set(paths[:15])


def test_a_folder_for_each_step(tmp_path):
    paths = [str(tmp_path / str(i) / "default") for i in range(MOST_FOLDERS + 5)]
    (tmp_path / "3" / "default").mkdir(parents=True)
    assert find_gone(paths) == set(paths) - {paths[3]}


def test_a_folder_that_tells_nothing(tmp_path):
    paths = [str(tmp_path / "elsewhere" / f"c{i}") for i in range(3)]
    assert find_gone(paths) == frozenset()
    (tmp_path / "elsewhere").mkdir()
    assert find_gone(paths) == frozenset()
    assert find_gone(["gs://bucket/a", "gs://bucket/b"]) == frozenset()
    assert find_gone(["a"]) == frozenset()
