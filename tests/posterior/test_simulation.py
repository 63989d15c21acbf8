"""A simulation is the same however it was run or stopped, and its failures are told apart and told of."""

import signal
import subprocess
import sys
import textwrap
import time
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isr import ocean as geoacoustics
from isr.posterior.priors import parse_prior
from isr.posterior.simulation import FailedSimulationsWarning, Simulations, simulate
from isr.tables.tables import read_table

PRIOR = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}
SETTINGS = {"random_state": 7, "chunk_size": 40}


def waves(x):
    return np.exp(1j * x) * x[:, ::-1]


def square(x):
    return x**2


def assert_same(one: Simulations, other: Simulations) -> None:
    assert one.x.tobytes() == other.x.tobytes()
    assert one.y.dtype == other.y.dtype
    assert one.y.tobytes() == other.y.tobytes()
    assert one.failures.equals(other.failures)
    assert one.names == other.names


def parts(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.npz"))}


@pytest.mark.parametrize(
    ("backend", "n_jobs"),
    [("threading", 2), ("threading", 3), pytest.param("loky", 2, marks=pytest.mark.slow)],
)
def test_workers_and_backends_leave_the_same_rows(backend, n_jobs):
    def local_waves(x):  # worker processes cannot import a test module
        return np.exp(1j * x) * x[:, ::-1]

    alone = simulate(PRIOR, waves, 205, **SETTINGS)
    with joblib.parallel_config(backend=backend):
        assert_same(alone, simulate(PRIOR, local_waves, 205, n_jobs=n_jobs, **SETTINGS))


def test_rows_of_y_belong_to_their_rows_of_x_and_those_to_the_prior():
    found = simulate(PRIOR, waves, 205, **SETTINGS)
    assert found.x.shape == (205, 2)
    assert np.iscomplexobj(found.y)
    assert_array_equal(found.y, waves(found.x))
    assert np.isfinite(parse_prior(PRIOR).log_prob(found.x)).all()
    assert len(np.unique(found.x)) == found.x.size
    assert found.n_failed == 0
    assert found.failures.empty


def test_the_first_rows_do_not_depend_on_how_many_follow():
    few, many = (simulate(PRIOR, waves, n, **SETTINGS) for n in (50, 205))
    assert_array_equal(few.x, many.x[:50])


def test_another_seed_draws_other_rows():
    one, other = (simulate(PRIOR, waves, 40, random_state=seed) for seed in (0, 1))
    assert not np.intersect1d(one.x, other.x).size


def test_one_number_a_row_is_one_column():
    found = simulate(PRIOR, lambda x: x.sum(axis=1), 30)
    assert_array_equal(found.y, found.x.sum(axis=1, keepdims=True))


def test_integers_become_doubles():
    assert simulate(PRIOR, lambda x: x[:, 0] > 0, 30).y.dtype == float


def test_names_come_with_the_frame_of_x():
    found = simulate(PRIOR, square, 20)
    assert found.names == ("a", "b")
    table = read_table(found.x_frame(), bounds=found.prior.bounds)
    assert table.names == ("a", "b")
    assert_array_equal(table.values, found.x)
    assert simulate(lambda n, rng: rng.normal(size=(n, 2)), square, 5).names == ("x1", "x2")


def test_geoacoustic_priors_are_taken_as_they_are():
    found = simulate(geoacoustics.prior(2), lambda x: x[:, :1], 30)
    assert geoacoustics.prior(2).contains(found.x).all()
    assert found.names == geoacoustics.prior(2).names


def test_a_simulator_cannot_change_x():
    def careless(x):
        x *= 0
        return x + 1

    found = simulate(PRIOR, careless, 20)
    assert_array_equal(found.x, simulate(PRIOR, square, 20).x)


def moody(x):
    """Raises for the whole chunk if one row is bad, and has no finite answer to some others."""
    if (x[:, 0] < -0.9).any():
        raise RuntimeError("no mode propagates")
    return np.where(x > 1.9, np.inf, x)


def test_failures_are_told_apart_row_by_row():
    with pytest.warns(
        FailedSimulationsWarning,
        match=r"of 500 simulations failed.*RuntimeError: no mode propagates \(\d+ times\).*y is not finite \(\d+",
    ):
        found = simulate(PRIOR, moody, 500, **SETTINGS)
    drawn = simulate(PRIOR, square, 500, **SETTINGS).x
    raised, infinite = drawn[:, 0] < -0.9, drawn[:, 1] > 1.9
    assert 0 < raised.sum() < 100
    assert_array_equal(found.x, drawn[~(raised | infinite)])
    assert_array_equal(found.y, found.x)
    assert found.n_failed == len(found.failures) == (raised | infinite).sum()
    assert list(found.failures.columns) == ["a", "b", "reason"]
    assert_array_equal(found.failures.index, np.flatnonzero(raised | infinite))
    assert_array_equal(found.failures[["a", "b"]], drawn[found.failures.index])
    said = found.failures["reason"].to_numpy() == "RuntimeError: no mode propagates"
    assert_array_equal(said, raised[found.failures.index])


def test_rows_a_simulator_leaves_out_are_found():
    with pytest.warns(FailedSimulationsWarning, match=r"returned shape \(0, 2\) for 1 rows"):
        found = simulate(PRIOR, lambda x: x[x[:, 0] > 0], 100)
    assert (found.x[:, 0] > 0).all()
    assert (found.failures["a"] <= 0).all()


def test_an_answer_of_none_is_a_failure_of_its_row():
    with pytest.warns(FailedSimulationsWarning, match=r"the simulator returned no numbers: \[None\]"):
        found = simulate(PRIOR, lambda x: [row if row[0] > 0 else None for row in x], 100)
    assert_array_equal(found.y, found.x)
    assert (found.failures["a"] <= 0).all()


def test_chunks_that_fail_altogether_do_not_spoil_the_others():
    def fails_at_first(x, calls=[]):  # noqa: B006
        calls.append(0)
        if len(calls) <= 41:
            raise OSError("not yet")
        return waves(x)

    with pytest.warns(FailedSimulationsWarning, match=r"40 of 100 .*not yet \(40 times\)"):
        found = simulate(PRIOR, fails_at_first, 100, **SETTINGS)
    assert_array_equal(found.y, waves(simulate(PRIOR, waves, 100, **SETTINGS).x[40:]))


def test_when_everything_fails_the_reason_is_given():
    with pytest.raises(
        ValueError, match=r"all 30 simulations failed: IndexError.*wrap one for a single vector"
    ):
        simulate(PRIOR, lambda x: np.array([x[0] + x[1]]), 30)
    with pytest.raises(ValueError, match=r"all 30 simulations failed: y is not finite \(30 times\)"):
        simulate(PRIOR, lambda x: x * np.nan, 30)


def uneven(x):
    if len(x) > 1:
        raise ValueError
    return np.ones((1, 1 + int(x[0, 0] > 0)))


@pytest.mark.parametrize(
    ("simulator", "error", "message"),
    [
        (
            lambda x: np.ones((len(x), 2, 3)),
            TypeError,
            r"3 dimensions \(shape \(30, 2, 3\)\).*reshape\(len\(x\)",
        ),
        (lambda x: ["wet"] * len(x), TypeError, "must return rows of numbers, got list: array"),
        (lambda x: x[:, :0], TypeError, r"returned no columns \(shape \(30, 0\)\)"),
        (uneven, TypeError, r"rows of different lengths: \[1, 2\]"),
        ("simulator", TypeError, "the simulator must be a function of rows of x, got str"),
    ],
)
def test_answers_that_cannot_be_rows_are_refused(simulator, error, message):
    with pytest.raises(error, match=message):
        simulate(PRIOR, simulator, 30)


def test_chunks_of_different_width_are_refused():
    with pytest.raises(TypeError, match=r"rows of different lengths: \[1, 2\]"):
        simulate(PRIOR, lambda x: x[:, : 2 if len(x) == 40 else 1], 50, **SETTINGS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "number of draws must be a whole number, at least 1, got 0"),
        ({"chunk_size": 0}, "chunk_size must be a whole number, at least 1, got 0"),
        ({"random_state": -1}, "random_state must be an integer of at least 0, got -1"),
        ({"random_state": None}, "random_state must be an integer .* a generator could not draw a chunk"),
        ({"prior": {"reason": (0, 1)}}, "'reason' names the column .* rename this variable"),
    ],
)
def test_wrong_requests_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        simulate(**({"prior": PRIOR, "simulator": waves, "n": 30} | options))


def test_a_folder_gives_back_what_was_simulated_without_simulating(tmp_path):
    def mine(x):
        return waves(x)

    first = simulate(PRIOR, mine, 205, folder=tmp_path, **SETTINGS)
    assert_same(first, simulate(PRIOR, waves, 205, **SETTINGS))
    calls = []

    def mine_again(x):
        calls.append(len(x))
        return waves(x)

    mine_again.__qualname__ = mine.__qualname__
    assert_same(first, simulate(PRIOR, mine_again, 205, folder=tmp_path, **SETTINGS))
    assert calls == []
    more = simulate(PRIOR, mine_again, 300, folder=tmp_path, **SETTINGS)
    assert calls == [40, 40, 20]
    assert_same(more, simulate(PRIOR, waves, 300, **SETTINGS))
    assert_same(first, simulate(PRIOR, mine_again, 205, folder=tmp_path, **SETTINGS))
    assert len(calls) == 3


def test_failures_and_signed_zeros_come_back_from_disk(tmp_path):
    def odd(x):
        if (x[:, 0] < -0.8).any():
            raise RuntimeError("no mode")
        y = np.empty(x.shape, complex)
        y.real, y.imag = np.where(x[:, :1] > 0, -0.0, x), np.where(x[:, 1:] > 1, -0.0, x)
        y[x[:, 1] > 1.9] = np.inf
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSimulationsWarning)
        found = [
            simulate(PRIOR, odd, 205, folder=folder, **SETTINGS) for folder in (tmp_path, tmp_path, None)
        ]
    assert found[0].n_failed > 0
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


def test_missing_and_damaged_chunks_are_computed_again(tmp_path):
    first = simulate(PRIOR, waves, 205, folder=tmp_path, **SETTINGS)
    before = parts(tmp_path)
    names = list(before)
    (tmp_path / names[1]).unlink()
    (tmp_path / names[3]).write_bytes(before[names[3]][:100])
    assert_same(first, simulate(PRIOR, waves, 205, folder=tmp_path, n_jobs=1, **SETTINGS))
    assert parts(tmp_path) == before


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    program = f"""
        import time
        import numpy as np
        from isr.posterior.simulation import simulate

        def waves(x):
            time.sleep(0.1)
            return np.exp(1j * x) * x[:, ::-1]

        simulate({PRIOR}, waves, 1600, folder={str(tmp_path / "killed")!r}, random_state=7, chunk_size=40)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").glob("part-*"))) < 3 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = parts(tmp_path / "killed")
    assert 3 <= len(kept) < 40
    resumed = simulate(PRIOR, waves, 1600, folder=tmp_path / "killed", **SETTINGS)
    whole = simulate(PRIOR, waves, 1600, folder=tmp_path / "whole", **SETTINGS)
    assert_same(resumed, whole)
    assert parts(tmp_path / "killed") == parts(tmp_path / "whole")
    assert kept.items() <= parts(tmp_path / "killed").items()


@pytest.mark.parametrize(
    "change",
    [{"random_state": 8}, {"chunk_size": 20}, {"prior": {"a": (-1.0, 1.0), "b": (0.0, 3.0)}},
     {"prior": {"a": (-1.0, 1.0), "c": (0.0, 2.0)}}, {"simulator": square}],
)  # fmt: skip
def test_another_simulation_in_the_folder_has_chunks_of_its_own(tmp_path, change):
    asked = {"prior": PRIOR, "simulator": waves, "n": 50, "folder": tmp_path, **SETTINGS}
    simulate(**asked)
    before = parts(tmp_path)
    assert_same(simulate(**(asked | change)), simulate(**(asked | change | {"folder": None})))
    assert before.items() < parts(tmp_path).items()


def test_a_prior_that_only_looks_the_same_is_noticed_by_its_draws(tmp_path):
    simulate(lambda n, rng: rng.normal(size=(n, 2)), waves, 50, folder=tmp_path)
    found = simulate(lambda n, rng: rng.uniform(size=(n, 2)), waves, 50, folder=tmp_path)
    assert np.all((found.x >= 0) & (found.x <= 1))


def test_a_broken_simulator_leaves_nothing_behind_that_outlives_its_repair(tmp_path):
    with pytest.raises(ValueError, match="all 50 simulations failed: NameError"):
        simulate(PRIOR, lambda x: typo(x), 50, folder=tmp_path)
    assert not parts(tmp_path)


def test_the_progress_bar_speaks_only_when_asked(capsys):
    simulate(PRIOR, waves, 120, **SETTINGS)
    assert capsys.readouterr() == ("", "")
    simulate(PRIOR, waves, 120, progress=True, **SETTINGS)
    assert "3/3" in capsys.readouterr().err
