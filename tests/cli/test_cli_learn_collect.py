"""`phasepoint learn collect`: what it is given wrongly."""

import pytest


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "nothing to collect: give a run, FILE.py:function, or --programs"),
        (("--programs", "no-such-*"), 2, "no program is called 'no-such-*'; give zoo, generated, all"),
        (("gone.py:programs",), 2, "gone.py: there is no such file; give FILE.py:function"),
        (("no-such-run",), 4, "no-such-run"),
        (("--programs", "zoo", "--limit", "1", "--device", "tpu-v9"), 2, "'tpu-v9' is no slice of TPUs"),
        (("no-such-run", "--device", "tpu-v5p"), 2, "a recorded run has its times already"),
    ],
)
def test_bad_input(phasepoint, tmp_path, words, code, message):
    done = phasepoint("learn", "collect", "--out", str(tmp_path / "corpus"), *words)
    assert done.code == code
    assert message in done.err
    assert not (tmp_path / "corpus").exists()


def test_a_file_that_gives_no_programs(phasepoint, tmp_path):
    (tmp_path / "mine.py").write_text("def programs():\n    return 3\n")
    for name, message in (("programs", "returns neither (function, shapes"), ("other", "has no function 'other'")):
        done = phasepoint("learn", "collect", "--out", str(tmp_path / "c"), f"{tmp_path}/mine.py:{name}")
        assert done.code == 2
        assert message in done.err


def test_a_run_without_modules(phasepoint, tmp_path, run_path):
    done = phasepoint("learn", "collect", "--out", str(tmp_path / "corpus"), run_path)
    assert done.code == 9
    assert "no compiled module is kept in this run" in done.err
    assert not (tmp_path / "corpus").exists()
