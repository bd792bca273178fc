"""Settings of a program, searched by replaying its phase: found, confirmed, resumed, and refused with a reason."""

import json
import math
import os
import signal
import subprocess
import sys
from itertools import product

import pytest

from phasepoint.core.errors import StoreError, UsageError
from phasepoint.replay.timed import time_replay
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run
from phasepoint.tune.offline.search import Measured, search
from phasepoint.tune.offline.space import read_space

SPACE = """
trials = {trials}
[knobs.batch]
argument = "--batch"
values = [16, 32, 64]
as_written = 32
samples = true
[knobs.mode]
environment = "JOB_MODE"
values = ["slow", "fast", "broken"]
effect = "changes numerics"
"""

JOB = """
import os, sys, time
import numpy as np
import phasepoint as pp
batch, mode = int(sys.argv[sys.argv.index("--batch") + 1]), os.environ.get("JOB_MODE", "slow")
if mode == "broken":
    raise SystemExit("no such mode")
print("printed by the job")
with pp.record(sys.argv[1], budget=float(os.environ.get("JOB_BUDGET", "0.5")), window_steps=2) as run:
    for step in run.steps(range(int(os.environ.get("JOB_STEPS", "150")))):
        time.sleep(0.01 + batch / 32 * (0.02 if mode == "slow" else 0.005))
        np.ones((64, 64)) @ np.ones((64, 64))
        run.log(loss=1 / (step + 1) * (1 if mode == "slow" else 1.01))
time.sleep(float(os.environ.get("JOB_REST_S", "0")))
"""
TORCH_JOB = JOB.replace("import numpy as np", "import torch as np; np.set_num_threads(1)")


@pytest.fixture
def space(tmp_path):
    def write(trials=9, text=SPACE):
        path = tmp_path / "space.toml"
        path.write_text(text.format(trials=trials) if "{trials}" in text else text)
        return path

    return write


def each(measure):
    """Runs the settings of every group with a function of one."""
    return lambda groups, bounds: [[measure(setting, bounds) for setting in group] for group in groups]


def made_up(setting, _bounds=None, noise=lambda: 1.0):
    if setting["mode"] == "broken":
        return Measured(None, dur_s=0.5, problem="exit code 1")
    step_ns = 2e6 + setting["batch"] / 32 * (4e6 if setting["mode"] == "slow" else 1e6)
    factor = 1.0 if setting["mode"] == "slow" else 1.01
    return Measured(step_ns * noise(), 40, 1.0, logged={"loss": {"3": 0.5 * factor}})


def test_the_best_per_sample_is_found_and_confirmed(space, tmp_path):
    found = read_space(space())
    outcome = search(found, each(made_up), tmp_path / "out", seed=1)
    assert outcome.verdict == "tuned"
    assert outcome.chosen == {"batch": 64, "mode": "fast"}
    assert outcome.gain.value == pytest.approx(6 / (4 / 2) - 1)  # 6 ms for 32 samples; 4 ms for 64
    assert outcome.gain.low > 0
    assert outcome.pairs == 5
    assert outcome.difference == pytest.approx(0.01, rel=0.02)
    assert any(trial.setting == outcome.chosen for trial in outcome.trials)
    failed = [trial for trial in outcome.trials if trial.gain is None]
    assert all(trial.measured.problem == "exit code 1" for trial in failed)


def test_a_search_that_was_cut_off_goes_on(space, tmp_path):
    found, ran = read_space(space()), []

    def measure(setting, bounds):
        ran.append(dict(setting))
        if len(ran) == 4:
            raise KeyboardInterrupt
        return made_up(setting)

    with pytest.raises(KeyboardInterrupt):
        search(found, each(measure), tmp_path / "out")
    with (tmp_path / "out" / "trials.jsonl").open("a") as file:
        file.write('{"setting": {"ba')  # killed while it wrote
    before = len(ran) - 1
    outcome = search(found, each(measure), tmp_path / "out")
    assert outcome.chosen == {"batch": 64, "mode": "fast"}
    tried = ran[before + 1 : before + 1 + len(outcome.trials) - before]
    assert not [setting for setting in tried if setting in ran[:before]]


def test_a_job_that_failed_and_was_mended_is_run_again(space, tmp_path):
    found = read_space(space())
    broken = search(found, each(lambda *_: Measured(None, dur_s=0.5, problem="exit code 1")), tmp_path / "out")
    assert (broken.verdict, len(broken.trials)) == ("undecided", 1)
    assert "exit code 1" in broken.reason
    assert not broken.could_run
    outcome = search(found, each(made_up), tmp_path / "out", seed=1)
    assert outcome.could_run
    assert outcome.chosen == {"batch": 64, "mode": "fast"}
    assert len({json.dumps(trial.setting) for trial in outcome.trials}) == len(outcome.trials)


def test_where_nothing_is_faster_nothing_is_chosen(space, tmp_path):
    found = read_space(space())
    outcome = search(found, each(lambda setting, _: Measured(1e6 * found.samples(setting), 40, 1.0)), tmp_path / "out")
    assert (outcome.verdict, outcome.chosen) == ("nothing to tune", found.as_written)


def test_a_lucky_run_is_not_taken_for_a_gain(space, tmp_path):
    """All settings are alike; what scatters by a fifth looks better in some run."""
    import random

    found, wins = read_space(space()), 0
    for seed in range(20):
        chance = random.Random(seed)
        outcome = search(
            found,
            each(
                lambda setting, _, chance=chance: Measured(
                    1e6 * found.samples(setting) * chance.uniform(0.8, 1.2), 40, 1.0
                )
            ),
            tmp_path / str(seed),
            seed=seed,
        )
        wins += outcome.verdict == "tuned"
    assert wins <= 2


def test_a_run_is_told_beyond_what_it_cannot_win(space, tmp_path):
    found, ran = read_space(space()), []

    def measure(setting, bounds):
        fastest_ns = min((made.step_ns / found.samples(one) for one, made, _ in ran if made.step_ns), default=None)
        assert bounds is None or (bounds.run_s, bounds.step_ns) == (3.0, 1.5 * fastest_ns)
        ran.append((setting, made_up(setting), bounds))
        return ran[-1][1]

    outcome = search(found, each(measure), tmp_path / "out")
    bounds = [bounds for _, _, bounds in ran]
    tried = len(outcome.trials)
    assert bounds[0] is None  # nothing is known yet
    assert None not in bounds[1:tried]
    assert set(bounds[tried:]) == {None}  # of the pairs that confirm, each counts whole


def test_half_of_the_space_is_enough(space, tmp_path):
    reached = 0
    for seed in range(10):
        found = read_space(space(trials=6))
        outcome = search(found, each(made_up), tmp_path / str(seed), seed=seed)
        reached += made_up(outcome.chosen).step_ns / found.samples(outcome.chosen) <= 2e6 * 1.6
    assert reached >= 8


def test_the_command_line_gets_the_values(space):
    found = read_space(space())
    setting = {"batch": 64, "mode": "fast"}
    assert found.words(["train.py", "--batch", "8", "-v"], setting) == ["train.py", "--batch", "64", "-v"]
    assert found.words(["train.py", "--batch=8"], setting) == ["train.py", "--batch=64"]
    assert found.words(["train.py"], setting) == ["train.py", "--batch", "64"]
    assert found.environ(setting) == {"JOB_MODE": "fast"}
    assert found.samples(setting) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("knobs = 3", "it has no knobs"),
        ("[knobs.a", "no TOML"),
        ("more = 1\n[knobs.a]\nvalues=[1,2]", "'more' is not known"),
        ("trials = 0\n[knobs.a]\nvalues=[1,2]", "trials is 0"),
        ('[knobs.a]\nvalues = [1]\nargument = "-a"', "values is [1]; expected a list of two or more"),
        ("[knobs.a]\nvalues = [1, 2]", "say either argument"),
        ('[knobs.a]\nvalues = [1, 2]\nargument = "-a"\nspeed = 1', "'speed' is not known"),
        ('[knobs.a]\nvalues = [0, 2]\nargument = "-a"\nsamples = true', "needs values above 0"),
        ('[knobs.a]\nvalues = [1, 2]\nargument = "-a"\neffect = "none"', "effect is 'none'"),
    ],
)
def test_a_space_that_is_none_is_refused_with_the_place(space, text, message):
    with pytest.raises(UsageError, match=r"space\.toml") as raised:
        read_space(space(text=text))
    assert message in str(raised.value)


def test_results_that_are_none_are_refused(space, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trials.jsonl").write_text("[]\n[]\n")
    with pytest.raises(StoreError, match=r"trials\.jsonl, line 1"):
        search(read_space(space()), each(made_up), tmp_path / "out")


@pytest.mark.parametrize("machines", [1, 3])
def test_several_machines_run_a_setting_each_and_a_pair_stays_on_one(space, tmp_path, machines):
    asked = []

    def measure(groups, bounds):
        asked.append([len(group) for group in groups])
        return each(made_up)(groups, bounds)

    outcome = search(read_space(space()), measure, tmp_path / "out", machines=machines)
    assert outcome.chosen == {"batch": 64, "mode": "fast"}
    searched, confirmed = asked[1 : -outcome.pairs], asked[-outcome.pairs :]
    assert all(groups == [2] for groups in confirmed)
    assert max(map(len, searched)) == machines
    assert sum(map(len, searched)) == len(outcome.trials) - 1
    assert len({json.dumps(trial.setting) for trial in outcome.trials}) == len(outcome.trials)


@pytest.fixture
def recorded(tmp_path, monkeypatch, request):
    """A job and its recording, of so many steps as a test asks for: the words of its command line."""
    monkeypatch.setenv("JOB_STEPS", str(getattr(request, "param", 150)))
    job = tmp_path / "train.py"
    job.write_text(TORCH_JOB if request.node.get_closest_marker("torch") else JOB)
    words = [sys.executable, str(job), str(tmp_path / "run"), "--batch", "32"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    assert subprocess.run(words, env=environment, check=False, capture_output=True).returncode == 0
    return words


def search_command(space, words, *options):
    text = SPACE.replace(', "broken"', "").replace("[16, 32, 64]", "[32, 64]")
    command = [sys.executable, "-m", "phasepoint", "tune", "search", str(space(4, text)), "--run", words[2]]
    command += ["--from-start", "--steps", "20", "--json", *options, "--", *words]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.torch
def test_a_real_job_is_searched_by_replays(space, recorded):
    found, printed = search_command(space, recorded)
    assert (found["kind"], found["verdict"]) == ("tune search", "tuned"), found
    assert found["chosen"] == {"batch": 64, "mode": "fast"}
    assert 0 < found["gain_low"] < found["gain"]
    assert found["gain"] == pytest.approx(2.0, abs=0.8)
    assert found["difference"] == pytest.approx(0.01, rel=0.1)
    assert all(trial["steps"] <= 30 for trial in found["trials"])  # 20 were asked for; the job has 150
    assert "printed by the job" in printed


@pytest.mark.parametrize("recorded", [30], indirect=True)
def test_a_job_that_does_not_start_ends_the_search_with_its_words(space, recorded, tmp_path):
    command = [
        sys.executable,
        "-m",
        "phasepoint",
        "tune",
        "search",
        str(space(4)),
        "--run",
        recorded[2],
        "--from-start",
    ]
    command += ["--steps", "20", "--out", str(tmp_path / "out"), "--json", "--"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    absent = [recorded[0], str(tmp_path / "absent.py"), *recorded[2:]]
    done = subprocess.run(
        [*command, *absent], capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 17, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "undecided"
    assert found["reason"].startswith("the job as it is could not be run: ")
    assert found["reason"].endswith("; mend it and give the same command again")
    done = subprocess.run(
        [*command, *recorded], capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


AS_IN_A_TERMINAL = (
    *(sys.executable, "-c"),
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)
"""What a shell starts in the background ignores Ctrl-C, and so does what that starts."""


@pytest.mark.parametrize("recorded", [400], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_search_and_not_the_setting_alone(space, recorded, number, tmp_path):
    command = [sys.executable, "-m", "phasepoint", "tune", "search", str(space(4)), "--run", recorded[2]]
    command += ["--from-start", "--steps", "380", "--out", str(tmp_path / "out"), "--", *recorded]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*AS_IN_A_TERMINAL, *command], stderr=subprocess.PIPE, text=True, env=environment
    ) as searching:
        assert any("printed by the job" in line for line in searching.stderr)
        searching.send_signal(number)
        searching.communicate(timeout=60)
    assert searching.returncode == {signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: 130}[number]
    results = tmp_path / "out" / "trials.jsonl"
    assert not results.exists() or not results.read_text()


@pytest.mark.parametrize("recorded", [30], indirect=True)
def test_a_phase_of_thirty_steps_is_long_enough_to_be_timed(space, recorded):
    """A replay captures up to twenty steps of a phase, beside which nothing is timed; a search needs their times."""
    found, _ = search_command(space, recorded)
    assert found["chosen"] == {"batch": 64, "mode": "fast"}, found
    assert [trial["problem"] for trial in found["trials"]] == [""] * 4


@pytest.mark.parametrize("recorded", [60], indirect=True)
def test_a_job_that_goes_on_after_its_last_step_is_not_waited_for(recorded, tmp_path):
    analysis = analyse_run(open_run(recorded[2]))
    phase = str(max(analysis.result.phases, key=lambda one: one.total_ps).id)
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "JOB_REST_S": "100"}
    timed = time_replay(analysis, phase, recorded, str(tmp_path / "out"), environ=environ, steps=20, from_start=True)
    assert timed.steps >= 10, timed
    assert timed.dur_s < 100


@pytest.mark.parametrize("recorded", [60], indirect=True)
def test_a_recording_without_a_window_is_searched_all_the_same(space, monkeypatch, recorded):
    monkeypatch.setenv("JOB_BUDGET", "0.000001")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    words = [*recorded[:2], recorded[2] + "-unseen", *recorded[3:]]
    assert subprocess.run(words, env=environment, check=False, capture_output=True).returncode == 0
    assert not len(open_run(words[2]).table("windows"))
    found, _ = search_command(space, words)
    assert found["chosen"] == {"batch": 64, "mode": "fast"}, found


@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_the_machines_of_a_ray_cluster_search_together(space, recorded, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (extra `cluster`)")
    from ray_cluster import ray_cluster

    with ray_cluster(monkeypatch) as (cluster, _nodes):
        found, _ = search_command(space, recorded, "--ray", cluster.address)
    assert found["chosen"] == {"batch": 64, "mode": "fast"}, found
    assert [trial["problem"] for trial in found["trials"]] == [""] * 4


def searches_near_the_best(tmp_path, knobs, true_ns):
    """Of 20 searches of 14 settings in runs that scatter by 3 %: how many end within 5 % of the best of all 72."""
    import random

    text = "trials = 14\n" + "".join(
        f'[knobs.{name}]\nargument = "--{name}"\nvalues = {json.dumps(values)}\n' for name, values in knobs.items()
    )
    (tmp_path / "space.toml").write_text(text)
    found, reached = read_space(tmp_path / "space.toml"), 0
    best = min(true_ns(dict(zip(knobs, values, strict=True))) for values in product(*knobs.values()))
    for seed in range(20):
        chance = random.Random(seed)
        outcome = search(
            found,
            each(lambda setting, _, chance=chance: Measured(true_ns(setting) * chance.gauss(1, 0.03), 40, 1.0)),
            tmp_path / str(seed),
            seed=seed,
        )
        reached += true_ns(outcome.chosen) <= best / 0.95
    assert found.size == 72
    return reached


def test_a_fifth_of_the_space_is_enough_where_knobs_do_not_hinder_each_other(tmp_path):
    """Four knobs of 2 to 4 values; a pair of them wins a little less than each alone."""
    factors = {"a": (1, 0.8, 0.7, 1.2), "b": (1, 0.9, 1.1), "c": (1, 0.6), "d": (1, 1.3, 0.95)}

    def true_ns(setting):
        product = math.prod(factors[name][value] for name, value in setting.items())
        return 1e6 * product * (1.05 if setting["a"] == 2 and setting["c"] == 1 else 1)

    knobs = {name: list(range(len(values))) for name, values in factors.items()}
    assert searches_near_the_best(tmp_path, knobs, true_ns) >= 18


def test_knobs_that_hinder_each_other_do_not_mislead(tmp_path):
    """What wins most alone, a fused operation, loses with the type that wins most of all; batches help that type."""
    knobs = {  # the job as it is has the first of each
        "batch": [8, 4, 16],
        "narrow": [0, 1],
        "threads": [2, 1],
        "optimizer": ["loop", "each", "all"],
        "fused": [0, 1],
    }

    def true_ns(setting):
        narrow, fused = setting["narrow"], setting["fused"]
        factor = 0.75 if narrow else 1.0
        factor *= 1.8 if narrow and fused else 0.7 if fused else 1.0
        factor *= {4: 1.15, 8: 1.0, 16: 0.7 if narrow else 1.05}[setting["batch"]]
        factor *= {"loop": 1.0, "each": 0.95, "all": 0.85}[setting["optimizer"]]
        return 1e6 * factor * (1.5 if setting["threads"] == 1 else 1.0)

    assert searches_near_the_best(tmp_path, knobs, true_ns) >= 15


def test_the_job_as_it_is_may_have_a_value_that_is_not_tried(space, tmp_path):
    found = read_space(space(text=SPACE.format(trials=7).replace("as_written = 32", "as_written = 24")))
    outcome = search(found, each(made_up), tmp_path / "out", seed=1)
    assert outcome.as_written["batch"] == 24
    assert outcome.chosen == {"batch": 64, "mode": "fast"}


def test_a_search_goes_on_when_other_values_are_to_be_tried(space, tmp_path):
    search(read_space(space(3)), each(made_up), tmp_path / "out", seed=1)
    fewer = SPACE.format(trials=6).replace("[16, 32, 64]", "[32, 64]")
    outcome = search(read_space(space(text=fewer)), each(made_up), tmp_path / "out", seed=1)
    assert outcome.chosen == {"batch": 64, "mode": "fast"}
