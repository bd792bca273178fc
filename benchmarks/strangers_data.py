"""Makes the data that the programs of `strangers.py` read: small, the same each time, in the files they expect.

    python strangers_data.py MAKER FOLDER

Nothing is downloaded. Images are noise with a bright block whose place is the class, so that there is something to
learn; texts are words drawn by a Zipf law.
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np

SEED = 0
TRAIN_IMAGES = 6_000
TEST_IMAGES = 1_000
CLASSES = 10


def make_digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `[count, 28, 28]` of bytes and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count).astype(np.uint8)
    images = rng.integers(0, 60, (count, 28, 28), dtype=np.uint8)
    for index, label in enumerate(labels):
        row, column = 3 + 12 * (label // 5), 1 + 5 * (label % 5)
        images[index, row : row + 9, column : column + 5] += 150
    return images, labels


def idx_bytes(array: np.ndarray) -> bytes:
    """The array in the format of MNIST's own files."""
    magic = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_files(folder: Path, *, packed: bool, train: int = TRAIN_IMAGES, test: int = TEST_IMAGES) -> None:
    """The four files of MNIST, gzipped or not."""
    for prefix, count, seed in (("train", train, SEED), ("t10k", test, SEED + 1)):
        images, labels = make_digits(count, seed)
        for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array), mtime=0))
            else:
                (folder / name).write_bytes(idx_bytes(array))


def mnist_torchvision(folder: Path) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    mnist_files(raw, packed=False)


def mnist_gz(folder: Path) -> None:
    mnist_files(folder, packed=True, train=TRAIN_IMAGES // 2)


def mnist_hub(folder: Path) -> None:
    """A folder that `datasets.load_dataset` reads by its name."""
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture

    features = Features({"image": Image(), "label": ClassLabel(num_classes=CLASSES)})
    for split, count, seed in (("train", TRAIN_IMAGES, SEED), ("test", TEST_IMAGES, SEED + 1)):
        images, labels = make_digits(count, seed)
        rows = {"image": [Picture.fromarray(image) for image in images], "label": labels.tolist()}
        Dataset.from_dict(rows, features=features).to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


def mnist_torchvision_small(folder: Path) -> None:
    """For programs that evaluate or search all of it: a tenth."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    mnist_files(raw, packed=False, train=TRAIN_IMAGES // 10, test=TEST_IMAGES // 10)


def mnist_tensors(folder: Path) -> None:
    """All 60,000, which Lightning's example splits, as the tensors that its own data set loads."""
    import torch

    (folder / "MNIST" / "complete").mkdir(parents=True)
    for name, count, seed in (("training", 60_000, SEED), ("test", TEST_IMAGES, SEED + 1)):
        images, labels = make_digits(count, seed)
        pair = torch.from_numpy(images), torch.from_numpy(labels).long()
        torch.save(pair, folder / "MNIST" / "complete" / f"{name}.pt")


def tfds_mnist(folder: Path) -> None:
    """MNIST as `tensorflow_datasets` prepares it, from made files instead of downloaded ones."""
    import tensorflow_datasets as tfds
    import tensorflow_datasets.image_classification.mnist as mnist

    raw = folder / "raw"
    raw.mkdir()
    mnist_files(raw, packed=False)
    names = {"train_data": "train-images-idx3-ubyte", "train_labels": "train-labels-idx1-ubyte"}
    names |= {"test_data": "t10k-images-idx3-ubyte", "test_labels": "t10k-labels-idx1-ubyte"}
    tfds.download.DownloadManager.download_and_extract = lambda self, urls: {key: raw / names[key] for key in urls}
    mnist._TRAIN_EXAMPLES, mnist._TEST_EXAMPLES = TRAIN_IMAGES, TEST_IMAGES
    tfds.builder("mnist", data_dir=str(folder)).download_and_prepare()


def tfds_binarized(folder: Path) -> None:
    """Binarised MNIST likewise: a line of 784 zeros and ones for each image."""
    import tensorflow_datasets as tfds

    raw = folder / "raw"
    raw.mkdir()
    for index, (split, count) in enumerate((("train", 2_000), ("valid", 200), ("test", 200))):
        images, _ = make_digits(count, index)
        lines = [" ".join("1" if pixel > 100 else "0" for pixel in image.ravel()) for image in images]
        (raw / f"binarized_mnist_{split}.amat").write_text("\n".join(lines) + "\n")
    tfds.download.DownloadManager.download = lambda self, urls: {
        key: raw / str(url).rsplit("/", 1)[1] for key, url in urls.items()
    }
    tfds.builder("binarized_mnist", data_dir=str(folder)).download_and_prepare()


def _tokenizer(folder: Path, words: list[str]) -> None:
    """A tokenizer of whole words, as `transformers` loads it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]"]
    vocabulary = {word: index for index, word in enumerate(special + sorted(set(words)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "eos_token": "[EOS]",
    }
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)


def mrpc(folder: Path) -> None:
    """What Accelerate's examples load by name, found in the working directory first: a BERT, tiny and untrained, pairs
    of sentences with labels, and a metric."""
    import torch
    from datasets import Dataset
    from transformers import BertConfig, BertForSequenceClassification

    words = _words(40_000, SEED)
    _tokenizer(folder / "bert-base-cased", words)
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    )
    BertForSequenceClassification(config).save_pretrained(folder / "bert-base-cased")
    glue = folder / "nyu-mll" / "glue" / "mrpc"
    glue.mkdir(parents=True)
    at = 0
    for split, count in (("train", 640), ("validation", 96), ("test", 32)):
        rows: dict[str, list[object]] = {"sentence1": [], "sentence2": [], "label": [], "idx": []}
        for index in range(count):
            first, second, at = words[at : at + 15], words[at + 15 : at + 30], at + 30
            rows["sentence1"].append(" ".join(first))
            rows["sentence2"].append(" ".join(first if index % 2 else second))
            rows["label"].append(index % 2)
            rows["idx"].append(index)
        Dataset.from_dict(rows).to_parquet(str(glue / f"{split}-00000-of-00001.parquet"))
    (glue.parent / "README.md").write_text(
        "---\nconfigs:\n- config_name: mrpc\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: mrpc/{split}-*\n" for split in ("train", "validation", "test"))
        + "---\n"
    )
    (folder / "glue").mkdir()
    (folder / "glue" / "glue.py").write_text(ACCURACY)


ACCURACY = '''"""Accuracy, where `evaluate.load("glue", "mrpc")` looks first."""

import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="accuracy", citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(int(a == b) for a, b in zip(predictions, references)) / len(references)}
'''


def tiny_gpt2(folder: Path) -> None:
    """A GPT-2, tiny and untrained, with its tokenizer, and texts to train it on."""
    import json

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    words = _words(40_000, SEED)
    _tokenizer(folder / "tiny-gpt2", words)
    torch.manual_seed(SEED)
    config = GPT2Config(vocab_size=512, n_embd=64, n_layer=2, n_head=2, n_positions=128, eos_token_id=4, bos_token_id=4)
    GPT2LMHeadModel(config).save_pretrained(folder / "tiny-gpt2")
    (folder / "texts").mkdir()
    rows = [json.dumps({"text": " ".join(words[at : at + 40])}) for at in range(0, 20_000, 40)]
    (folder / "texts" / "train.jsonl").write_text("\n".join(rows) + "\n")


def pictures(folder: Path) -> None:
    """An ImageFolder with training and validation pictures of four classes, 48 × 48."""
    from PIL import Image

    rng = np.random.default_rng(SEED)
    for split, each in (("train", 80), ("val", 16)):
        for label in range(4):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True)
            for index in range(each):
                pixels = rng.integers(0, 120, (48, 48, 3), dtype=np.uint8)
                pixels[:, :, label % 3] += 30 * label
                Image.fromarray(pixels).save(place / f"{index:04d}.jpg", quality=90)


def bsds300(folder: Path) -> None:
    """Pictures where `super_resolution` looks for the Berkeley segmentation data, large enough for its crops."""
    from PIL import Image

    rng = np.random.default_rng(SEED)
    for split, count in (("train", 48), ("test", 16)):
        place = folder / "images" / split
        place.mkdir(parents=True)
        for index in range(count):
            coarse = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
            coarse.resize((300, 280), Image.Resampling.BICUBIC).save(place / f"{index}.jpg", quality=90)


def _words(count: int, seed: int, vocabulary: int = 400) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"w{int(number)}" for number in np.minimum(rng.zipf(1.3, count), vocabulary)]


def wikitext(folder: Path) -> None:
    for seed, (split, count) in enumerate((("train", 60_000), ("valid", 4_000), ("test", 4_000))):
        words = _words(count, seed)
        lines = [" ".join(words[begin : begin + 20]) for begin in range(0, count, 20)]
        (folder / f"{split}.txt").write_text(" \n ".join(lines) + "\n")


def characters(folder: Path) -> None:
    """A text of some 100 kB for character models, under the two names that they want."""
    (folder / "input.txt").write_text("O God, O God! " + " ".join(_words(30_000, SEED)))


def char_bins(folder: Path) -> None:
    """nanoGPT's `train.bin`, `val.bin` and `meta.pkl` of the same text."""
    import pickle

    text = " ".join(_words(30_000, SEED))
    letters = sorted(set(text))
    numbers = {letter: index for index, letter in enumerate(letters)}
    codes = np.array([numbers[letter] for letter in text], dtype=np.uint16)
    cut = int(0.9 * len(codes))
    codes[:cut].tofile(folder / "train.bin")
    codes[cut:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def sine_waves(folder: Path) -> None:
    """`traindata.pt` of `time_sequence_prediction`, shorter than its own."""
    import torch

    rng = np.random.default_rng(2)
    times = np.arange(250) + rng.integers(-80, 80, 60).reshape(60, 1)
    torch.save(np.sin(times / 20.0).astype("float64"), folder / "traindata.pt")


def cora(folder: Path) -> None:
    """A graph of papers in the two text files of Cora."""
    rng = np.random.default_rng(SEED)
    papers, words, classes = 2_000, 300, 7
    labels = rng.integers(0, classes, papers)
    present = rng.random((papers, words)) < 0.03
    for paper, label in enumerate(labels):
        present[paper, label * 20 : label * 20 + 20] |= rng.random(20) < 0.3
        present[paper, 0] = True
    rows = [
        "\t".join([str(paper), *("1" if word else "0" for word in present[paper]), f"Class{labels[paper]}"])
        for paper in range(papers)
    ]
    (folder / "cora.content").write_text("\n".join(rows) + "\n")
    pairs = {(int(a), int(b)) for a, b in rng.integers(0, papers, (4_000, 2)) if a != b}
    (folder / "cora.cites").write_text("\n".join(f"{a}\t{b}" for a, b in sorted(pairs)) + "\n")


def planetoid(folder: Path) -> None:
    """The same kind of graph in the pickles of Planetoid, as PyTorch Geometric reads them."""
    import pickle

    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(SEED)
    papers, words, classes, tests, trained = 2_000, 300, 7, 1_000, 140
    labels = rng.integers(0, classes, papers)
    present = rng.random((papers, words)) < 0.03
    for paper, label in enumerate(labels):
        present[paper, label * 20 : label * 20 + 20] |= rng.random(20) < 0.3
    features, one_hot = csr_matrix(present.astype(np.float32)), np.eye(classes, dtype=np.int32)[labels]
    rest = papers - tests
    graph: dict[int, list[int]] = {paper: [] for paper in range(papers)}
    for a, b in rng.integers(0, papers, (4_000, 2)):
        graph[int(a)].append(int(b))
    parts = {"x": features[:trained], "y": one_hot[:trained], "allx": features[:rest], "ally": one_hot[:rest]}
    for name, part in (parts | {"tx": features[rest:], "ty": one_hot[rest:], "graph": graph}).items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("".join(f"{paper}\n" for paper in range(rest, papers)))


def conllu(folder: Path) -> None:
    """Sentences in CoNLL's columns; a word's tag follows from the word."""
    words = _words(12_000, SEED)
    for split, begin, end in (("train", 0, 10_000), ("dev", 10_000, 10_640)):
        lines = []
        for at in range(begin, end, 10):
            for index, word in enumerate(words[at : at + 10]):
                tag = f"T{len(word) + int(word[1:]) % 3}"
                lines.append("\t".join((str(index + 1), word, word, tag, tag, "_", str(index), "dep", "_", "_")))
            lines.append("")
        (folder / f"{split}.conllu").write_text("\n".join(lines) + "\n")


MAKERS = {
    maker.__name__: maker
    for maker in (
        mnist_torchvision,
        mnist_torchvision_small,
        mnist_tensors,
        mnist_gz,
        tfds_binarized,
        mrpc,
        tiny_gpt2,
        mnist_hub,
        tfds_mnist,
        pictures,
        bsds300,
        wikitext,
        characters,
        char_bins,
        sine_waves,
        cora,
        planetoid,
        conllu,
    )
}


def main() -> None:
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True)
    MAKERS[sys.argv[1]](folder)


if __name__ == "__main__":
    main()
