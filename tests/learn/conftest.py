"""What tests of learning share: a file of tiny programs, and a corpus collected from it."""

import textwrap

import pytest

PROGRAMS = """
    from phasepoint.zoo import ProgramSpec


    def three():
        import jax
        import jax.numpy as jnp

        def shape(*sizes):
            return jax.ShapeDtypeStruct(sizes, jnp.float32)

        def softmax(w, x):
            return jax.nn.softmax(x @ w)

        def scan(x):
            return jax.lax.scan(lambda c, _: (jnp.tanh(c) * 2, c.sum()), x, None, length=5)

        def broken(x):
            return x @ x

        return [
            ProgramSpec("a.softmax", "a", "small", "forward", lambda: (softmax, (shape(64, 64), shape(32, 64)))),
            ProgramSpec("b.scan", "b", "small", "forward", lambda: (scan, (shape(64, 64),))),
            ProgramSpec("c.broken", "c", "small", "train", lambda: (broken, (shape(3, 4),))),
        ]
"""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Boosted trees of tests are small: on a busy machine threads spend their time waiting for each other."""
    import sklearn.ensemble  # noqa: F401 - limits are set on what is loaded
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1, user_api="openmp"):
        yield


@pytest.fixture(scope="session")
def program_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "tiny.py"
    path.write_text(textwrap.dedent(PROGRAMS))
    return f"{path}:three"


@pytest.fixture(scope="session")
def names(program_file):
    """The programs of the file, found by a process of their own."""
    from phasepoint.learn.corpus.collect import names_in_file

    return names_in_file(program_file)


@pytest.fixture(scope="session")
def collected(tmp_path_factory, names):
    """(folder, what `collect` returned): two rounds of three programs, one of them broken."""
    from phasepoint.learn.corpus.collect import collect

    folder = tmp_path_factory.mktemp("corpora") / "tiny"
    return folder, collect(folder, names, rounds=2, repeats=3)


@pytest.fixture
def crashing_file(tmp_path):
    """Two programs, the first of which takes its process with it while it is built."""
    path = tmp_path / "crashing.py"
    path.write_text(
        textwrap.dedent(
            """
            import os

            from phasepoint.zoo import ProgramSpec


            def both():
                import jax
                import jax.numpy as jnp

                shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
                return [
                    ProgramSpec("crash", "x", "", "forward", lambda: os.kill(os.getpid(), 9)),
                    ProgramSpec("whole", "x", "", "forward", lambda: (lambda x: jnp.sin(x) @ x, (shape,))),
                ]
            """
        )
    )
    return f"{path}:both"
