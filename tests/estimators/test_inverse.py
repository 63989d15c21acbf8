"""ISR and ConditionalISR against posteriors known in closed form."""

import numpy as np
import pandas as pd
import pytest

import isr
from isr.estimators.inverse import observation_noise
from isr.estimators.settings import Effort

# Many are trained for a moment only.
pytestmark = pytest.mark.filterwarnings("ignore:a normal law, linear in what is given")

N = 4000
SIGMA = 0.5
# The joint form takes the noise to be small against the spread of y.
SMALL = 0.1


def _linear_pairs():
    x = np.random.default_rng(0).normal(size=(N, 2))
    return x, (x[:, 0] + 2 * x[:, 1])[:, None]


def _training(n_steps, **more):
    return isr.Training(Effort(n_steps, 0, 0), n_restarts=1, penalty=None, verbose=False, **more)


def _options(**more):
    return {
        "n_blocks": 1, "n_layers": 1, "library": {"constant": 1, "id": 2}, "training": _training(1500),
        "noise": SIGMA, "random_state": 0, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def conditional():
    return isr.ConditionalISR(**_options()).fit(*_linear_pairs())


@pytest.fixture(scope="module")
def joint():
    return isr.ISR(**_options(noise=SMALL)).fit(*_linear_pairs())


def _closed_form(y_star):
    """Posterior of x ~ N(0, I) given y = x1 + 2 x2 + noise."""
    a = np.array([1.0, 2.0])
    covariance = np.linalg.inv(np.eye(2) + np.outer(a, a) / SIGMA**2)
    return covariance @ a * y_star / SIGMA**2, covariance


def test_a_linear_gaussian_posterior_is_the_conjugate_one(conditional):
    mean, covariance = _closed_form(1.5)
    drawn = conditional.posterior([1.5]).sample(20_000)
    assert np.allclose(drawn.mean(axis=0), mean, atol=0.06)
    assert np.allclose(np.cov(drawn.T), covariance, atol=0.08)


def test_the_joint_form_predicts_y_and_inverts_it(joint):
    x, y = _linear_pairs()
    assert np.sqrt(np.mean((joint.predict(x) - y) ** 2)) < 0.05
    drawn = joint.posterior([1.5]).sample(20_000)
    assert np.std(drawn @ [1.0, 2.0]) == pytest.approx(SMALL, rel=0.1)
    assert np.mean(drawn @ [1.0, 2.0]) == pytest.approx(1.5, abs=0.1)


def test_the_joint_forms_noise_is_what_was_added(joint):
    assert joint.flow_.noise[0] == pytest.approx(SMALL, rel=0.05)


def test_samples_come_one_block_for_every_observation(conditional):
    drawn = conditional.sample([[0.0], [3.0]], 500)
    assert drawn.shape == (2, 500, 2)
    assert np.mean(drawn[1] @ [1.0, 2.0]) > np.mean(drawn[0] @ [1.0, 2.0]) + 2


def test_a_saved_model_is_the_same_model(conditional, tmp_path):
    conditional.save(tmp_path / "m.isr")
    bundle = isr.load(tmp_path / "m.isr")
    x, y = _linear_pairs()
    assert bundle.kind == "ConditionalISR"
    assert np.array_equal(bundle.log_prob(x[:50], y[:50]), conditional.log_prob(x[:50], y[:50]))


def test_the_equations_are_the_model(conditional, joint):
    for model in (conditional, joint):
        assert isr.check(model.flow_, model.expressions_).passed


def test_a_far_observation_warns(conditional):
    with pytest.warns(UserWarning, match="y1"):
        conditional.posterior([40.0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [isr.ConditionalISR, isr.ISR])
def test_the_mlp_gives_the_baselines(kind):
    model = kind(**_options(subnet="mlp", training=_training(100))).fit(*_linear_pairs())
    assert model.posterior([0.0]).sample(10).shape == (10, 2)


def test_a_simulator_with_a_bounded_prior_never_leaves_its_box():
    def simulator(x):
        return np.exp(1j * x[:, :1]) * x[:, 1:]

    model = isr.ConditionalISR(**_options(noise=0.1, training=_training(200), units={"angle": "rad"}))
    model.fit_simulator({"angle": (-1.0, 1.0), "size": (0.5, 2.0)}, simulator, 2000)
    assert model.y_columns_.names == ("y1_re", "y1_im")
    assert model.expressions_.units == {"angle": "rad"}
    drawn = model.posterior([[1.2, 0.3]]).frame(2000)
    assert list(drawn.columns) == ["angle", "size"]
    assert drawn["angle"].between(-1, 1).all()
    assert drawn["size"].between(0.5, 2).all()
    simulated = model.simulations_
    y = np.stack([simulated.y.real, simulated.y.imag], axis=2).reshape(len(simulated.x), -1)
    noisy = y + 0.1 * np.random.default_rng(0).normal(size=y.shape)
    assert model.front_["nll"].min() == pytest.approx(-model.score(simulated.x, noisy), abs=0.15)


def test_frames_keep_their_names():
    x, y = _linear_pairs()
    frames = pd.DataFrame(x, columns=["depth", "speed"]), pd.DataFrame({"pressure": y[:, 0]})
    model = isr.ConditionalISR(**_options(training=_training(50))).fit(*frames)
    text = model.expressions_.text()
    assert "depth" in text
    assert "pressure" in text
    assert model.posterior({"pressure": 0.2}).summary(200).index.tolist() == ["depth", "speed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -1.0}, "noise must be finite and not negative"),
        ({"noise": "loud"}, "noise must be"),
        ({"noise": {"q": 1.0}}, "no columns of y"),
        ({"units": {"q": "m"}}, "units for unknown columns"),
    ],
)
def test_bad_options_are_named(options, message):
    x, y = _linear_pairs()
    with pytest.raises(ValueError, match=message):
        isr.ConditionalISR(**_options(**options)).fit(x[:50], y[:50])


def test_too_many_observations_for_isr_are_refused():
    x, _ = _linear_pairs()
    with pytest.raises(ValueError, match="use ConditionalISR"):
        isr.ISR(**_options()).fit(x, np.random.default_rng(0).normal(size=(N, 3)))
    with pytest.raises(TypeError, match="ISR has no option 'condenser'"):
        isr.ISR(condenser=3)


def test_rows_must_pair():
    x, y = _linear_pairs()
    with pytest.raises(ValueError, match="row i of one must belong to row i of the other"):
        isr.ISR(**_options()).fit(x, y[:-1])


def test_auto_noise_is_a_hundredth_of_the_spread():
    from isr.tables.tables import read_table

    _, y = _linear_pairs()
    assert observation_noise("auto", read_table(y, what="y")) == pytest.approx(0.01 * y.std())


Y_STAR = np.array([3.0, -40.0])


def _identity(x):
    return x.copy()


def _in_rounds(n, rounds, steps, folder=None):
    options = _options(
        noise=1.0, training=_training(steps), library={"constant": 1, "id": 2, "sin": 2, "sigmoid": 2}
    )
    return isr.ConditionalISR(**options).fit_simulator(
        {"a": (-50, 50), "b": (-100, 100)}, _identity, n, y_star=Y_STAR, rounds=rounds, folder=folder
    )


def test_a_second_round_simulates_where_the_first_posterior_lives(tmp_path):
    model = _in_rounds(1000, 2, 300, tmp_path)
    first, second = model.rounds_
    assert np.all(second.widths < 0.9 * first.widths)
    assert second.contains(Y_STAR[None])
    assert np.all(second.contains(model.simulations_.x))
    assert len(model.simulations_.x) == 1000
    assert model.prior_.bounds == second.pairs()
    assert np.all(second.contains(model.posterior(Y_STAR).sample(2000)))
    assert (tmp_path / "round-2").is_dir()


@pytest.mark.slow
def test_rounds_end_in_the_exact_posterior_a_hundredth_as_wide_as_the_prior():
    drawn = _in_rounds(1500, 4, 1500).posterior(Y_STAR).sample(8000)
    assert np.allclose(drawn.mean(axis=0), Y_STAR, atol=0.2)
    assert np.allclose(drawn.std(axis=0), 1.0, rtol=0.25)


def test_rounds_without_an_observation_are_refused():
    with pytest.raises(ValueError, match="y_star"):
        isr.ConditionalISR().fit_simulator({"a": (0, 1)}, _identity, 10, rounds=2)


def test_an_observation_of_the_wrong_width_is_told_before_the_first_fit():
    model = isr.ConditionalISR(**_options())
    with pytest.raises(ValueError, match="y_star"):
        model.fit_simulator({"a": (0, 1), "b": (0, 1)}, _identity, 20, y_star=[1.0, 2.0, 3.0], rounds=2)
    assert not hasattr(model, "flow_")


@pytest.mark.slow
def test_the_training_record_knows_the_noise():
    x = np.random.default_rng(0).normal(size=(500, 2))
    model = isr.ConditionalISR(**_options(noise=3.0, training=_training(50))).fit(x, 0.01 * x[:, :1])
    assert model.training_.high[0] > 5
