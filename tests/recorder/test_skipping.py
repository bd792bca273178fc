"""Taking loops to their place: exactly the batches, the generators, the loaders of the original."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder_fakes import FakeClock, FakeSession, fake_record

from phasepoint.recorder.replaying import JUDGED_STEPS
from phasepoint.recorder.resume import request as resume
from phasepoint.recorder.resume.loader_state import LoaderState, RandomState, restore_state, take_state
from phasepoint.recorder.resume.loop_place import LoopPlace, PastLoops
from phasepoint.recorder.resume.request import VARIABLE, ReplayRequest
from phasepoint.store import open_run

pytestmark = pytest.mark.usefixtures("still")


class Job:
    """A program, run once from its start and then from any checkpoint; `train(run, seen, save)` is its loop.

    `seen` takes (step, what the step did); `save(state)` writes a checkpoint.
    """

    def __init__(self, tmp_path, monkeypatch, train):
        self.path = tmp_path
        self.monkeypatch = monkeypatch
        self.train = train
        self.saved = {}
        monkeypatch.setattr(resume, "_taken", resume._Taken())
        self.original = self._run(tmp_path / "run", None)

    def _run(self, path, checkpoint):
        clock, seen = FakeClock(), []
        random.seed(3)
        np.random.seed(3)
        with fake_record(path, clock, FakeSession(clock), budget=0) as run:

            def save(state):
                name = f"ckpt/{len(self.saved)}"
                if checkpoint is None:
                    self.saved[name] = state
                run.checkpoint(name)

            def see(what):
                seen.append((run.recorder.next_step, what))

            self.train(run, see, save, None if run.resume is None else self.saved[run.resume.checkpoint])
        return seen

    def rows(self):
        return open_run(self.path / "run").table("checkpoints").to_pylist()

    def place(self, row):
        place = LoopPlace.from_text(row["loop_place"])
        for later in self.rows():
            if later["loop_place"] is not None:
                place = place.settled(LoopPlace.from_text(later["loop_place"]))
        return place

    def replay(self, row, steps=4, **changes):
        """What the steps after a checkpoint do when replayed, and what was told."""
        first = 0 if row["step"] is None else row["step"] + 1
        request = ReplayRequest(
            path=str(self.path / f"replay-{first}"),
            original=str(self.path / "run"),
            checkpoint=row["path"],
            checkpoint_step=row["step"],
            first_step=first,
            target_first=first,
            target_last=first,
            last_step=first + steps - 1,
            iterator_state=row["iterator_state"],
            handshake=str(self.path / f"handshake-{first}"),
            protected=(),
            saves=str(self.path / "saves"),
            loop_place=row["loop_place"] and self.place(row).to_text(),
        )
        self.monkeypatch.setattr(resume, "_taken", resume._Taken())
        self.monkeypatch.setenv(VARIABLE, ReplayRequest(**{**vars(request), **changes}).to_environ())
        seen = self._run(self.path / "never", "replay")
        lines = (self.path / f"handshake-{first}").read_text().splitlines()
        return seen, [json.loads(line) for line in lines]

    def expected(self, row, steps=4):
        first = 0 if row["step"] is None else row["step"] + 1
        return [(step, what) for step, what in self.original if first <= step < first + steps]

    def check_all(self, least=1, *, but_last=0):
        """Replays every checkpoint, and returns what was told last of the way to the first step."""
        rows = self.rows()[: -but_last or None]
        assert len(rows) >= least
        ways = []
        for row in rows:
            seen, events = self.replay(row)
            assert seen == self.expected(row), row
            ways += [event["event"] for event in events if event["event"] in ("skipped", "restored")]
        return ways


@pytest.fixture
def job(tmp_path, monkeypatch):
    return lambda train: Job(tmp_path, monkeypatch, train)


def test_epochs_are_gone_through_whole(job):
    def train(run, see, save, state):
        for epoch in range(4):
            for batch in run.steps(range(5), resume=True):
                see((epoch, batch))
                if batch in (1, 4):
                    save(None)
            if state is None:
                save(None)

    assert set(job(train).check_all(12)) == {"skipped"}


def test_evaluations_between_and_inside_of_steps(job):
    """Their batches are steps, too; those inside of a skipped step are not gone through."""

    def train(run, see, save, state):
        for epoch in range(3):
            for batch in run.steps(range(7), resume=True):
                see(("train", epoch, batch))
                if batch % 3 == 2:
                    for held_out in run.steps(range(2), resume=True):
                        see(("inner", epoch, held_out))
                    save(None)
            for held_out in run.steps(range(3), resume=True):
                see(("eval", epoch, held_out))
                save(None)

    job(train).check_all(15)


def test_evaluations_without_resume_are_not_gone_through(job):
    def train(run, see, save, state):
        for epoch in range(3):
            for batch in run.steps(range(4), resume=True):
                see(("train", epoch, batch))
                save(None)
            for held_out in run.steps(range(3)):
                see(("eval", epoch, held_out))

    job(train).check_all(12)


@pytest.mark.parametrize("own", [True, False])
def test_a_program_that_goes_on_in_a_later_epoch(job, own):
    """It restores the epoch, too, and so leaves out the loops before; what it does after each loop is not repeated."""
    torch = pytest.importorskip("torch")

    def train(run, see, save, state):
        torch.manual_seed(1)
        shuffle = torch.Generator().manual_seed(2) if own else None
        loader = torch.utils.data.DataLoader(torch.arange(12), batch_size=2, shuffle=True, generator=shuffle)
        rate, first_epoch = 1.0, 0
        if state is not None:
            first_epoch, rate, generator = state
            torch.set_rng_state(generator)
        for epoch in range(first_epoch, 4):
            for index, batch in enumerate(run.steps(loader, resume=True, loop=epoch)):
                see((epoch, rate, batch.tolist(), torch.rand(1).item()))
                if index < 5:
                    save((epoch, rate, torch.get_rng_state()))
            rate *= 0.5
            save((epoch + 1, rate, torch.get_rng_state()))

    job(train).check_all(20, but_last=1)


def test_loops_that_are_left_early(job):
    """An endless loader; each epoch takes four batches. Only a later checkpoint tells that the loop was left."""

    def train(run, see, save, state):
        numbers = iter(range(10**9))
        for epoch in range(3):
            for batch in run.steps(numbers, resume=True):
                see((epoch, batch))
                save(None)
                if batch % 4 == 3:
                    break

    job(train).check_all(11, but_last=1)


def test_generators_are_put_back_and_shuffles_are_the_originals(job):
    """The loader shuffles by the global generators, and so do the steps, whose states are in the checkpoints."""

    class Loader:
        def __iter__(self):
            order = list(range(6))
            random.shuffle(order)
            yield from zip(order, np.random.permutation(6).tolist(), strict=True)

    def train(run, see, save, state):
        if state is not None:
            assert run.resume is not None
            state.put_back()
        for epoch in range(3):
            for batch in run.steps(Loader(), resume=True):
                see((epoch, batch, random.random(), np.random.random()))
                save(RandomState.take())
            random.random()

    job(train).check_all(18)


@pytest.mark.parametrize("own", [True, False])
def test_torch_generator_and_loader(job, own):
    """The loader shuffles by its own generator, or by the global one, from which the steps draw as well."""
    torch = pytest.importorskip("torch")
    data = torch.arange(12)

    def train(run, see, save, state):
        torch.manual_seed(1)
        shuffle = torch.Generator().manual_seed(2) if own else None
        loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=shuffle)
        if state is not None:
            torch.set_rng_state(state)
        for epoch in range(3):
            for batch in run.steps(loader, resume=True):
                see((epoch, batch.tolist(), torch.rand(1).item()))
                save(torch.get_rng_state())

    assert set(job(train).check_all(18)) == {"skipped"}


# The loader's workers are forked; where another test of the process has imported JAX, it warns of that.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_stateful_loader_is_restored(job, n_workers):
    torch = pytest.importorskip("torch")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def train(run, see, save, state):
        torch.manual_seed(1)
        loader = stateful.StatefulDataLoader(
            list(range(12)), batch_size=2, shuffle=True, num_workers=n_workers, multiprocessing_context=None
        )
        if state is not None:
            torch.set_rng_state(state)
        for epoch in range(2):
            for batch in run.steps(loader, resume=True):
                see((epoch, batch.tolist(), torch.rand(1).item()))
                if epoch == 1 or batch[0] % 2:
                    save(torch.get_rng_state())

    done = job(train)
    if n_workers:
        seen, events = done.replay(done.rows()[-3])
        assert seen == done.expected(done.rows()[-3])
        assert [event["event"] for event in events][2] == "restored"
    else:
        assert set(done.check_all(6)) == {"restored"}


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_taking_a_stateful_loaders_state_changes_nothing():
    torch = pytest.importorskip("torch")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def batches(*, take):
        torch.manual_seed(1)
        loader, seen = stateful.StatefulDataLoader(list(range(20)), batch_size=2, shuffle=True), []
        for _ in range(2):
            iterator = iter(loader)
            for batch in iterator:
                seen.append((batch.tolist(), torch.rand(1).item()))
                if take:
                    assert take_state(loader, iterator) is not None
        return seen

    assert batches(take=True) == batches(take=False)


@pytest.mark.filterwarnings("ignore")
def test_a_grain_loader_is_restored(job):
    grain = pytest.importorskip("grain.python")
    source = grain.RangeDataSource(start=0, stop=10, step=1)

    def train(run, see, save, state):
        sampler = grain.IndexSampler(10, shard_options=grain.NoSharding(), shuffle=True, num_epochs=3, seed=5)
        for batch in run.steps(grain.DataLoader(data_source=source, sampler=sampler, worker_count=0), resume=True):
            see(int(batch))
            if batch % 3 == 0:
                save(None)

    assert set(job(train).check_all(9)) == {"restored"}


@pytest.mark.filterwarnings("ignore")
def test_a_grain_dataset_is_restored(job):
    grain = pytest.importorskip("grain.python")

    def train(run, see, save, state):
        dataset = grain.MapDataset.range(12).shuffle(seed=4).repeat(2).to_iter_dataset()
        for batch in run.steps(iter(dataset), resume=True):
            see(int(batch))
            save(None)

    assert set(job(train).check_all(24)) == {"restored"}


def test_a_state_that_the_loader_does_not_take_any_more_ends_the_replay(job, capsys):
    class Loader:
        def __iter__(self):
            return iter(range(5))

    def train(run, see, save, state):
        for batch in run.steps(Loader(), resume=True):
            see(batch)
            save(None)

    done = job(train)
    text = LoaderState("loader", "load_state_dict", {"at": 3}).to_text()
    with pytest.raises(SystemExit) as ended:
        done.replay({**done.rows()[2], "iterator_state": text})
    assert ended.value.code == 17
    assert "the loader of loop 0 has no load_state_dict" in capsys.readouterr().err


@pytest.mark.parametrize(("now", "message"), [(3, "took 5 batches in the original and has 3 now"), (9, "has more now")])
def test_other_data_ends_the_replay(job, capsys, now, message):
    lengths = [5]

    def train(run, see, save, state):
        for _ in range(2):
            for batch in run.steps(range(lengths[0]), resume=True):
                see(batch)
                save(None)

    done = job(train)
    rows = done.rows()
    lengths[0] = now
    with pytest.raises(SystemExit):
        done.replay(rows[6])
    assert message in capsys.readouterr().err


def test_loops_without_resume_before_the_first_step_are_empty_where_the_original_had_it(job):
    def train(run, see, save, state):
        for batch in run.steps(range(2)):
            see(("sanity", batch))
        for batch in run.steps(range(5), resume=True):
            see(("train", batch))
            save(None)

    job(train).check_all(5)


@pytest.mark.parametrize(("hopeless_ns", "steps"), [(1, 2 + JUDGED_STEPS), (10**15, 30), (None, 30)])
def test_a_replay_ends_where_its_first_steps_take_too_long(job, hopeless_ns, steps):
    def train(run, see, save, state):
        for batch in run.steps(range(60), resume=True):
            see(("train", batch))
            if batch == 3:
                save(None)

    made = job(train)
    seen, told = made.replay(made.rows()[0], 30, hopeless_ns=hopeless_ns)
    assert [step for step, _ in seen] == list(range(4, 4 + steps))
    assert (told[-1]["event"], told[-1]["step"]) == ("done", 3 + steps)


def test_a_loader_whose_state_fails_is_drawn(job):
    class Loader:
        def __iter__(self):
            return iter(range(5))

        def state_dict(self):
            raise RuntimeError("not now")

        def load_state_dict(self, state):
            raise AssertionError

    def train(run, see, save, state):
        for batch in run.steps(Loader(), resume=True):
            see(batch)
            save(None)
        assert run.off_reason is None

    assert set(job(train).check_all(5)) == {"skipped"}


def test_checkpoints_of_ordinary_loops_have_no_place(job):
    def train(run, see, save, state):
        for batch in run.steps(range(3)):
            see(batch)
            save(None)

    assert {(row["loop_place"], row["iterator_state"]) for row in job(train).rows()} == {(None, None)}


def test_a_checkpoint_of_another_step_has_no_place(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0) as run:
        for _ in run.steps(range(3), resume=True):
            run.checkpoint("a", step=0)
    rows = open_run(tmp_path / "run").table("checkpoints").to_pylist()
    assert [row["loop_place"] is None for row in rows] == [False, True, True]


states = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers() | st.just("~"), inner)
    ),
    max_leaves=20,
)


@given(states)
def test_states_survive_their_text(value):
    found = LoaderState.from_text(LoaderState("loader", "load_state_dict", value).to_text()).state
    assert found == value
    assert _types(found) == _types(value)


def _types(value):
    if isinstance(value, dict):
        return {_types(key): _types(item) for key, item in value.items()}
    return (type(value), *map(_types, value)) if isinstance(value, list | tuple) else (type(value), value)


def test_arrays_and_tensors_survive_their_text():
    torch = pytest.importorskip("torch")
    state = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "n": np.float32(0.1), "t": torch.get_rng_state()}
    found = LoaderState.from_text(LoaderState("loader", "load_state_dict", state).to_text()).state
    assert found["a"].dtype == np.int16
    assert found["a"].tolist() == state["a"].tolist()
    assert (type(found["n"]), found["n"]) == (np.float32, np.float32(0.1))
    assert torch.equal(found["t"], state["t"])
    assert found["t"].dtype == torch.uint8
    scalar = LoaderState.from_text(LoaderState("loader", "load_state_dict", torch.tensor(3)).to_text()).state
    assert scalar.shape == ()


@pytest.mark.parametrize("value", [object(), {"f": print}, b"\xff" * 70_000, ["x" * 40_000] * 2, {1, 2}])
def test_what_is_too_long_or_foreign_is_not_kept(value):
    assert LoaderState("loader", "load_state_dict", value).to_text() is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "{}", '{"owner": "loader", "load": "set_state"}'),
        '{"owner": "loader", "load": "__init__", "state": 1}',
        '{"owner": "loader", "load": "load_state_dict", "state": {"~": "pickle"}}',
    ],
)
def test_a_broken_state_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        LoaderState.from_text(text)


def test_a_state_is_put_where_it_came_from():
    class Iterator:
        def __init__(self):
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            return self.at

        def get_state(self):
            return b'{"at": 3}'

        def set_state(self, state):
            self.at = json.loads(state)["at"]

    state = LoaderState.from_text(take_state([], Iterator()))
    assert next(restore_state(state, Iterator())) == 4
    assert restore_state(state, [1, 2]) is None


def test_a_later_place_tells_that_a_loop_was_left():
    here = LoopPlace((PastLoops(4, False, 1),), 4)
    left = LoopPlace((PastLoops(4, False, 2),), 1)
    assert here.settled(left) == LoopPlace((PastLoops(4, False, 1), PastLoops(4, False, 1)), None)
    for other in (
        LoopPlace((PastLoops(4, False, 1),), 5),
        LoopPlace((PastLoops(4, False, 1), PastLoops(4, True, 1)), 0),
    ):
        assert here.settled(other) == here


def test_places_survive_their_text():
    place = LoopPlace((PastLoops(5, True, 3), PastLoops(2, False, 1)), 4)
    drawn = LoopPlace((), 1, RandomState.take())
    here = random.random(), np.random.random()
    LoopPlace.from_text(drawn.to_text()).generators.put_back()
    assert (random.random(), np.random.random()) == here
    assert LoopPlace.from_text(place.to_text()) == place
    assert place.loop == 4
    assert [place.past_loop(loop).batches for loop in range(4)] == [5, 5, 5, 2]
    with pytest.raises(ValueError, match="no place"):
        LoopPlace.from_text('{"past": 3}')
