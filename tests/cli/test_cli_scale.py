"""`phasepoint scale`: plans and validations as documents and text, and what they say to wrong input."""

import json

import pytest

from made_results import made_results, write_results

PLAN = ("scale", "plan", "--benchmark", "resnet", "--system", "tpu-v3", "--chips", "16", "--to", "1024")


def test_a_plan_is_a_document_and_a_table(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    outcome = phasepoint(*PLAN, "--measured", "42.2min", "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["version"], found["kind"]) == (0, 1, "scale plan")
    assert [row["chips"] for row in found["systems"]] == [32, 64, 128, 256, 512, 1024]
    assert found["start"]["time_min"] == 42.2
    shown = phasepoint(*PLAN, "--measured", "0.7h", "--batch", "4096")
    assert shown.code == 0
    assert "resnet on 1,024 × tpu-v3" in shown.out
    assert "--batch" not in shown.out
    assert "Say it with --batch" in phasepoint(*PLAN, "--measured", "2532s").out


@pytest.mark.parametrize("text", ["42.2", "long", "1.2.3min", "-3min"])
def test_a_time_without_a_unit_is_refused(phasepoint, text):
    outcome = phasepoint(*PLAN, f"--measured={text}")
    assert outcome.code == 2
    assert "expected a number with s, min, h or d" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "-5"), "--batch '-5': expected a number of 1 or more"),
        (("--to", "nan"), "--to 'nan': expected a number of 2 or more"),
        (("--to", "1e999"), "--to '1e999': expected a number of 2 or more"),
        (("--chips", "0"), "--chips"),
        (("--system", ""), "--benchmark needs what was measured"),
    ],
)
def test_numbers_that_cannot_be_are_refused(phasepoint, words, message):
    outcome = phasepoint(*PLAN, "--measured", "42.2min", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert (
        "--benchmark needs what was measured" in phasepoint("scale", "plan", "--benchmark", "resnet", "--to", "9").err
    )


def test_scale_alone_says_what_predictions_rest_on(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    sets = json.loads(phasepoint("scale", "--json").out)["sets"]
    assert sets[0]["file"] == "mlperf_training_results.parquet"
    assert all(row["count"] > 10 and 0 < row["mape"] < 0.2 for row in sets)
    shown = phasepoint("scale")
    assert shown.code == 0
    assert all(row["name"] in shown.out for row in sets)


def test_a_folder_is_validated(phasepoint, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    write_results(tmp_path, made_results())
    outcome = phasepoint("scale", "validate", str(tmp_path), "--json")
    (answer,) = json.loads(outcome.out)["files"]
    assert (outcome.code, answer["file"], answer["pairs"]) == (0, "mlperf_training_results.parquet", 120)
    assert 0 < answer["mape"] < 1
    assert sum(band["pairs"] for band in answer["by"] if band["name"].startswith("chips")) == 120
    shown = phasepoint("scale", "validate", str(tmp_path))
    assert "perfect scaling" in shown.out
    assert "chips above 64×" in shown.out


def test_folders_without_measurements_are_refused(phasepoint, tmp_path):
    outcome = phasepoint("scale", "validate", str(tmp_path / "none"))
    assert outcome.code == 2
    assert "no such folder" in outcome.err
    outcome = phasepoint("scale", "validate", str(tmp_path))
    assert outcome.code == 9
    assert "holds none of mlperf_training_results.parquet" in outcome.err
    (tmp_path / "tpu_gemm.parquet").write_bytes(b"")
    outcome = phasepoint("scale", "validate", str(tmp_path))
    assert outcome.code == 7
    assert "no Parquet file that can be read" in outcome.err


STEP = """
import jax, jax.numpy as jnp
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), 0.0
def alone(w):
    return w
args = (jax.ShapeDtypeStruct((128, 128), jnp.float32), jax.ShapeDtypeStruct((64, 128), jnp.float32))
weights = args[:1]
"""


@pytest.fixture
def step(tmp_path):
    (tmp_path / "train.py").write_text(STEP)
    return f"{tmp_path}/train.py:step"


def test_a_plan_of_a_step_is_a_document_and_a_table(phasepoint, step, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    words = ("scale", "plan", step, "--args-from", "args", "--to", "tpu-v3:2x2", "--batch", "64..256")
    run = ("--samples", "1e6", "--start", "2min", "--save", "10s", "--restart", "5min", "--price", "2")
    found = json.loads(phasepoint(*words, *run, "--json").out)
    assert (found["version"], found["kind"], found["slice"], found["chips"]) == (1, "scale plan", "v3:2x2", 4)
    assert [row["batch"] for row in found["rows"]] == [64, 128, 256]
    for row in found["rows"]:
        assert row["fits"]
        assert row["devices"] == 8
        assert row["step_ps"] == row["compute_ps"] + row["exposed_ps"]
        parts = ("starting", "steps", "evaluation", "saving", "lost")
        assert row["run"]["wall"] == pytest.approx(sum(row["run"][name] for name in parts))
        assert row["cost"] == pytest.approx(2 * 4 * row["run"]["wall"] / 3600)
    shown = phasepoint(*words, *run)
    assert shown.code == 0
    assert "samples/s with a batch of 256" in shown.out
    assert "saving" in shown.out
    assert all(f"{row['cost']:.2f}" in shown.out for row in found["rows"])
    assert "saving" not in phasepoint(*words).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a training step, as in train.py:step, or --benchmark NAME"),
        (("STEP", "--benchmark", "resnet"), "give a training step, as in train.py:step, or --benchmark NAME"),
        (("train.py",), "names no function"),
        (
            ("STEP", "--args-from", "args", "--batch", "100"),
            "a batch of 100 can't be divided among 8 devices; 96 or 104",
        ),
        (("STEP", "--args-from", "args", "--batch", "many"), "--batch 'many': expected 4096"),
        (("STEP", "--args-from", "args", "--data", "x"), "--data 'x' is no number"),
        (("STEP", "--args-from", "args", "--samples", "9", "--save", "10"), "--save '10' is no time"),
        (("STEP:alone", "--args-from", "weights"), "no argument of the function is a batch"),
    ],
)
def test_plans_that_cannot_be(phasepoint, step, words, message):
    given = [step.replace(":step", ":alone") if word == "STEP:alone" else word.replace("STEP", step) for word in words]
    outcome = phasepoint("scale", "plan", *given, "--to", "v3:2x2")
    assert outcome.code == 2
    assert message in outcome.err
    assert phasepoint("scale", "plan", step, "--args-from", "args", "--to", "v3:99x2").code == 2


def test_a_what_if_is_a_document_and_a_table(phasepoint, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "train.py").write_text(LSTM)
    words = ("scale", "what-if", f"{tmp_path}/train.py:step", "--args-from", "args", "--to", "v3:2x2", "--batch", "64")
    chosen = ("--without", "lstm-projection", "--without", "space-to-depth")
    found = json.loads(phasepoint(*words, *chosen, "--json").out)
    assert (found["kind"], found["chips"], found["step"]["batch"]) == ("scale what-if", 4, 64)
    assert [(row["technique"], row["is_used"]) for row in found["without"]] == [
        ("lstm-projection", True),
        ("space-to-depth", False),
    ]
    shown = phasepoint(*words, *chosen)
    assert shown.code == 0
    assert "the input projection is inside the loop" in shown.out
    assert "The step is the same without space-to-depth: it does not use them" in shown.out
    refused = phasepoint(*words, "--without", "luck")
    assert refused.code == 2
    assert "--without 'luck': expected one of" in refused.err


def test_plans_of_steps_and_techniques_are_pages(phasepoint, step, tmp_path):
    page = tmp_path / "plan.html"
    words = ("scale", "plan", step, "--args-from", "args", "--to", "tpu-v3:2x2", "--batch", "64,128", "-o", str(page))
    done = phasepoint(*words)
    assert done.code == 0
    assert f"wrote {page}" in done.out
    assert "To narrow the interval" in done.out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "<script" not in text
    assert text.count("batch 128") >= 2
    assert phasepoint(*words).code != 0
    (tmp_path / "lstm.py").write_text(LSTM)
    asked = (f"{tmp_path}/lstm.py:step", "--args-from", "args", "--to", "v3:2x2", "--batch", "64")
    page = tmp_path / "techniques.html"
    done = phasepoint("scale", "what-if", *asked, "--without", "lstm-projection", "-o", str(page))
    assert done.code == 0
    assert "without lstm-projection" in page.read_text()


def test_hosts_wait_as_those_of_a_recorded_job_did(phasepoint, step, run_path, tmp_path):
    words = ("scale", "plan", step, "--args-from", "args", "--to", "tpu-v3:8x8", "--batch", "1024", "--json")
    (alone,) = json.loads(phasepoint(*words).out)["rows"]
    (row,) = json.loads(phasepoint(*words, "--like", run_path).out)["rows"]
    assert (alone["input_ps"], alone["slowest_ps"]) == (0, 0)
    assert row["input_ps"] == 2 * 10**9  # as made_run has it: 2 ms
    assert row["slowest_ps"] > 0
    parts = ("compute_ps", "exposed_ps", "input_ps", "slowest_ps")
    assert row["step_ps"] == sum(row[name] for name in parts)
    assert row["high_ps"] - alone["high_ps"] == row["input_ps"] + row["slowest_ps"]
    run = ("--samples", "1e6", "--evaluation", "10min")
    (row,) = json.loads(phasepoint(*words, *run).out)["rows"]
    assert row["run"]["evaluation"] == 600.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "8*H100 SXM5"), "recorded on cpu; what its steps take on H100 SXM5 is not known"),
        (("--to", "2*cpu"), "does not say how many cores it used"),
        (("--to", "0*cpu"), "expected 1 to 1024 host devices"),
        (("--to", "2*cpu", "--gradients", "many"), "--gradients 'many' is no size"),
        (("--to", "2*cpu", "--samples", "1e6", "-o", "plan.html"), "--samples and --output: not of a recorded job"),
    ],
)
def test_recorded_jobs_that_cannot_be_planned(phasepoint, run_path, words, message):
    outcome = phasepoint("scale", "plan", run_path, *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_folder_that_is_no_run_is_said(phasepoint, tmp_path):
    outcome = phasepoint("scale", "plan", str(tmp_path), "--to", "2*cpu")
    assert outcome.code == 4
    assert "expected a run" in outcome.err


LSTM = """
import jax, jax.numpy as jnp
from phasepoint.scale import lstm
def step(weights, words):
    loss = lambda weights: jnp.square(lstm(words.swapaxes(0, 1), *weights)[0]).sum()
    return jax.tree.map(lambda one, other: one - 0.1 * other, weights, jax.grad(loss)(weights))
def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)
args = ((shape(256, 1024), shape(256, 1024), shape(1024)), shape(64, 20, 256))
"""


def test_a_transformer_is_laid_out(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ("scale", "plan", "llama3-70b", "--seq", "4096", "--to", "tpu-v5p:8x8x8", "--batch", "512..1024")
    run = ("--samples", "1e6", "--price", "4")
    found = json.loads(phasepoint(*words, *run, "--json").out)
    assert (found["model"], found["devices"], found["device"]) == ("llama3-70b", 512, "TPU v5p")
    assert [plan["batch"] for plan in found["batches"]] == [512, 1024]
    for plan in found["batches"]:
        assert plan["priced"] >= plan["fitting"] >= len(plan["best"]) == 3
        for row in plan["best"]:
            assert row["step_ps"] == sum(row["parts_ps"].values())
            assert row["memory_bytes"] == sum(row["memory"].values())
            assert row["run"]["wall"] > 0
    shown = phasepoint(*words, *run)
    assert shown.code == 0
    assert "llama3-70b on 512 × TPU v5p" in shown.out
    assert "What a step is made of" in shown.out
    many = phasepoint("scale", "plan", "llama3-405b", "--seq", "8192", "--to", "8*H100 SXM5", "--batch", "8")
    assert many.code == 0
    assert "no layout fits" in many.out
    assert "too much" in many.out
    assert "no step was measured on H100 SXM5" in many.err


def test_a_plan_is_a_page(phasepoint, tmp_path):
    page = tmp_path / "plan.html"
    words = ("scale", "plan", "llama3-8b", "--seq", "8192", "--to", "64*B200", "--batch", "128,256", "-o", str(page))
    done = phasepoint(*words)
    assert done.code == 0
    assert f"wrote {page}" in done.out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "Content-Security-Policy" in text
    assert "<script" not in text
    assert text.count("<svg") >= 3
    found = json.loads(phasepoint(*words, "--force", "--json").out)
    best = max((row for plan in found["batches"] for row in plan["best"]), key=lambda row: row["tokens_per_s"])
    assert f"{best['tokens_per_s']:,.0f} tokens/s" in text
    again = phasepoint(*words)
    assert again.code != 0
    assert "exists already" in again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama3-8b", "--to", "8*H100 SXM5"), "a transformer needs --seq N"),
        (("gpt-9", "--to", "8*H100 SXM5", "--seq", "9", "--batch", "8"), "neither a file nor a model of a name"),
        (("llama3-8b", "--to", "8*Abacus", "--seq", "9", "--batch", "8"), "--to '8*Abacus'"),
        (("llama3-8b", "--to", "v5p:8x8x8", "--seq", "9", "--batch", "3"), "no layout divides a batch of 3"),
    ],
)
def test_layouts_that_cannot_be(phasepoint, words, message):
    outcome = phasepoint("scale", "plan", *words)
    assert outcome.code == 2
    assert message in outcome.err
