"""Part 4, tuning and models: a job before and after, its loader while it runs, models measured, analyses of one."""

from benchmarks.gpu import tuning
from benchmarks.gpu.child import call
from benchmarks.gpu.suite import Figure, Measured, Row, Setting

TITLE = "tuning and models"

TIMER_TOLERANCE = 0.03
"""By which a latency may differ from what PyTorch's own timer measures."""
ANALYSES = 15


def _search(setting: Setting) -> Measured:
    found = call(setting, tuning.searched, folder=str(setting.folder))
    gain = found["before_s"] / found["after_s"] - 1
    ends = (found["gain_low"], found["gain_high"])
    figures = [Figure("gain told", "ratio", found["gain"]), Figure("gain of the job", "ratio", gain)]
    figures += [Figure("at least", "ratio", ends[0])] if ends[0] is not None else []
    figures += [Figure(name, "ms", found[f"{name}_s"] * 1e3) for name in ("before", "after")]
    figures += [Figure("trials", "", found["trials"]), Figure("spent", "s", found["spent_s"])]
    holds = found["verdict"] == "tuned" and gain > 0
    return Measured(tuple(figures), None if setting.is_small else holds, f"{found['verdict']}: {found['reason']}")


def _loader(setting: Setting) -> Measured:
    found = call(setting, tuning.loaded, folder=str(setting.folder))
    figures = (
        Figure("steady speed, times as fast", "", found["off_s"] / found["on_s"]),
        Figure("whole job, times as fast", "", found["off_whole_s"] / found["on_whole_s"]),
        Figure("sample before", "ms", found["off_s"] * 1e3),
        Figure("sample after", "ms", found["on_s"] * 1e3),
        Figure("losses equal", "yes", float(found["same"])),
    )
    holds = found["on_whole_s"] <= 1.01 * found["off_whole_s"]
    return Measured(figures, None if setting.is_small else holds, f"{found['verdict']}: {found['reason']}")


def _bench(setting: Setting) -> Measured:
    found = call(setting, tuning.benched, folder=str(setting.folder), keep=str(setting.keep))
    pairs, figures, failed = found["document"]["pairs"], [], []
    for row in pairs:
        name = f"{row['pair']['model']}, {row['pair']['precision']}"
        if row["status"] == "measured":
            figures.append(Figure(name, "ms", row["latency_ps"] / 1e9))
        else:
            failed.append(f"{name}: {row['reason']}")
    joules = [row["joules"] for row in found["longer"].get("pairs", ())]
    figures += [Figure("energy of an inference", "J", one) for one in joules if one is not None]
    apart = found["own_s"] / found["peer_s"] - 1
    figures.append(Figure("against torch.utils.benchmark", "ratio", apart))
    holds = abs(apart) <= TIMER_TOLERANCE and not failed
    return Measured(tuple(figures), None if setting.is_small else holds, "; ".join(failed))


def _analyses(setting: Setting) -> Measured:
    found = call(setting, tuning.analysed, folder=str(setting.folder), keep=str(setting.keep))
    empty = [code for code, rows in found["rows"].items() if not rows]
    figures = [Figure(code, "rows", rows) for code, rows in found["rows"].items()]
    said = "; ".join(sorted({note for notes in found["notes"].values() for note in notes}))
    return Measured((*figures, Figure("trace", "MB", found["trace_bytes"] / 1e6)), not empty, said)


ROWS: tuple[Row, ...] = (
    Row("tune search", "what is named is faster, and the job is", _search, 250.0, ("torch", "cuda")),
    Row("analyses", "each of XSP's fifteen has rows", _analyses, 35.0, ("torch",)),
    Row("tune a loader", "the whole job takes at most 1.01 times as long", _loader, 70.0, ("torch", "pillow")),
    Row("bench", "every model is measured; within 3 % of PyTorch's own timer", _bench, 185.0, ("torch",)),
)
