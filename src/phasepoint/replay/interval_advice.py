"""Which checkpoint interval is worth its price, if phases are to be replayed."""

from math import isqrt


def best_interval_ps(write_ps: int, run_ps: int, replays: int = 1) -> int:
    """The interval between checkpoints at which writing them and running forward from them cost least together.

    A run of `R` writes `R / T` checkpoints at `W` each. A replay of a random place runs forward `T / 2` from the
    checkpoint before it, on average; `k` replays run `k T / 2`. The sum

        C(T) = W R / T + k T / 2

    has its only minimum where both are equal: T* = √(2 W R / k), where it is √(2 k W R).

    Args:
        write_ps: what writing one checkpoint costs the job, ps, 0 or more.
        run_ps: length of the run, ps.
        replays: places that will be replayed, 1 or more.

    Returns:
        ps, at least 1 and at most the run: then the start of the run is the one place to start from.

    Source: the argument of Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
    with replays in the place of failures: there `R / k` is the mean time between failures, and T* = √(2 W M).
    """
    if write_ps < 0 or run_ps <= 0 or replays < 1:
        raise ValueError(f"write_ps {write_ps}, run_ps {run_ps}, replays {replays}: expected 0, 1 and 1 or more")
    return min(max(isqrt(2 * write_ps * run_ps // replays), 1), run_ps)


def interval_cost_ps(interval_ps: int, write_ps: int, run_ps: int, replays: int = 1) -> float:
    """C(T) of `best_interval_ps`, in ps."""
    return write_ps * run_ps / interval_ps + replays * interval_ps / 2
