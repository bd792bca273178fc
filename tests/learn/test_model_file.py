"""Models on disk: what is read is what was written, and what is damaged is said."""

import json

import numpy as np
import pytest

from phasepoint.core.errors import ModelError, OutputExistsError
from phasepoint.learn.models.model_file import StoredModel, read_model, write_model


def test_a_model_is_read_as_it_was_written(tmp_path):
    model = StoredModel("m", "operators", {"w": np.arange(3, dtype=np.float16)}, {"seed": 1})
    write_model(model, tmp_path / "m")
    read = read_model(tmp_path / "m", kind="operators")
    assert (read.name, read.kind, read.card) == ("m", "operators", {"seed": 1})
    np.testing.assert_array_equal(read.arrays["w"], model.arrays["w"])
    assert read.arrays["w"].dtype == np.float16


def test_a_model_is_not_overwritten(tmp_path):
    model = StoredModel("m", "operators", {"w": np.zeros(1)})
    write_model(model, tmp_path / "m")
    with pytest.raises(OutputExistsError, match="--force"):
        write_model(model, tmp_path / "m")
    write_model(model, tmp_path / "m", force=True)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"card\.json is missing"):
        read_model(tmp_path)
    with pytest.raises(ModelError, match="no model called 'nothing'"):
        read_model("builtin:nothing")
    write_model(StoredModel("m", "operators", {"w": np.zeros(1)}), tmp_path / "m")
    with pytest.raises(ModelError, match="of kind 'operators', not 'kernels'"):
        read_model(tmp_path / "m", kind="kernels")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_card_is_said(tmp_path, text):
    write_model(StoredModel("m", "operators", {"w": np.zeros(1)}), tmp_path / "m")
    (tmp_path / "m" / "card.json").write_text(text)
    with pytest.raises(ModelError, match="train the model anew"):
        read_model(tmp_path / "m")


def test_a_newer_model_is_refused(tmp_path):
    write_model(StoredModel("m", "operators", {"w": np.zeros(1)}), tmp_path / "m")
    card = json.loads((tmp_path / "m" / "card.json").read_text())
    (tmp_path / "m" / "card.json").write_text(json.dumps({**card, "version": 99}))
    with pytest.raises(ModelError, match="version 99"):
        read_model(tmp_path / "m")


def test_damaged_arrays_are_said(tmp_path):
    write_model(StoredModel("m", "operators", {"w": np.zeros(1000)}), tmp_path / "m")
    whole = (tmp_path / "m" / "model.npz").read_bytes()
    (tmp_path / "m" / "model.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="cannot be read"):
        read_model(tmp_path / "m")
