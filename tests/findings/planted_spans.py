"""Events of captured windows with a host, a device and a cause, for the rules that look at both."""

from planted_runs import MS, capture, noisy_steps, steps_of

US = MS // 1000
MAIN, WORKER = "python", "worker/1"


class Timeline:
    """Spans of one run; times are from the step's start."""

    def __init__(self):
        self.rows = []

    def add(self, where, name, begin_ps, dur_ps, *, level="runtime", device="host", track=MAIN, category="host"):
        window, step, start_ps = where
        row = {"window": window, "step": step, "span": len(self.rows), "parent": None, "level": level}
        row |= {"category": category, "name": name, "start_ps": start_ps + begin_ps, "dur_ps": dur_ps}
        self.rows.append(row | {"self_ps": dur_ps, "device": device, "track": track})

    def launch(self, where, begin_ps, dur_ps=100 * US, name="PjitFunction(train_step)"):
        self.add(where, name, begin_ps, dur_ps)

    def work(self, where, begin_ps, dur_ps, *, name="fusion", track=WORKER):
        self.add(where, name, begin_ps, dur_ps, level="op", device="cpu:0", track=track, category="compute")


def captured_run(fill, *, n=600, step_ms=10.0, seed=0, every=60, first=3):
    """Steps and rows of a run; `fill(timeline, where, dur_ps)` adds the events of one captured step.

    Returns:
        `(steps, rows)` as `view_of` takes them.
    """
    steps = steps_of(noisy_steps(n, step_ms=step_ms, noise=0.02, seed=seed))
    rows = capture(steps, lambda step: {"compute": 0.6}, every=every, first=first)
    timeline = Timeline()
    for window in rows["windows"]:
        for step in range(window["first_step"], window["last_step"] + 1):
            where = (window["window"], step, int(steps["start_ps"][step]))
            dur_ps = int(steps["dur_ps"][step])
            timeline.add(where, "phasepoint.step", 0, dur_ps, level="model")
            fill(timeline, where, dur_ps)
    return steps, rows | {"spans": timeline.rows}


def busy_step(timeline, where, dur_ps):
    """A host that runs ahead: launched at once, the device works throughout."""
    timeline.launch(where, 0)
    timeline.work(where, 0, dur_ps)
