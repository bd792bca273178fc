"""Published results as they would be if the formula were the truth."""

import math

import pyarrow as pa
import pyarrow.parquet as pq

from phasepoint.scale.mlperf.convergence import Convergence
from phasepoint.scale.mlperf.pairs import Scaling, predict_pairs
from phasepoint.scale.mlperf.records import RESULTS, Result

TRUTH = Scaling(
    convergence={"resnet": Convergence(math.log(20_000), 1.5), "bert": Convergence(math.log(4_000), 1.0)},
    log_rest={"resnet": math.log(6.0), "bert": math.log(2.0)},
    log_wait={"resnet": math.log(0.02), "bert": math.log(0.03)},
    convergence_share=1.0,
    log_first_network=math.log(0.03),
    log_grows=-1.5,
    torus_rest=0.0,
    torus_wait=0.0,
    batches={"resnet": (math.log(200), 0.8, 65_536.0), "bert": (math.log(50), 0.8, 16_384.0)},
)


def made_results(series: int = 12) -> list[Result]:
    """Each series measured on 8 to 1,024 chips."""
    found = []
    for number in range(series):
        benchmark = ("resnet", "bert")[number % 2]
        level, slope, most = TRUTH.batches[benchmark]
        first = None
        for chips in (8, 32, 64, 256, 1024):
            batch = float(round(min(math.exp(level) * chips**slope * (1 + 0.1 * (number % 3)), most)))
            samples = math.exp(TRUTH.convergence[benchmark].log_samples(batch)) * 30
            key = ("v9", f"submitter {number}", benchmark, "H100")
            row = Result(key, benchmark, "H100", chips, max(chips / 8, 1), batch, samples, "epochs", 60.0 + number)
            if first is None:
                first = row
            else:
                said = predict_pairs(TRUTH, [(first, row)])[0]
                row = Result(*[*_fields(row)[:-1], said.time_min])
            found.append(row)
    return found


def _fields(row: Result) -> list:
    return [getattr(row, name) for name in Result.__dataclass_fields__]


def write_results(folder, results) -> None:
    """As the parquet file has them: all text."""
    rows = [
        {
            "version": row.series[0],
            "submitter": row.series[1],
            "benchmark": row.benchmark,
            "accelerator": row.accelerator,
            "num_accelerators": f"{row.chips}",
            "num_nodes": "" if row.nodes is None else f"{row.nodes}",
            "global_batch_size": "" if row.batch is None else f"{row.batch}",
            "epochs_or_samples": "" if row.samples is None else f"{row.samples}",
            "unit": row.unit,
            "time_min": f"{row.time_min}",
        }
        for row in results
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / RESULTS)
