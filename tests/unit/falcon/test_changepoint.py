"""The slot filter against the exact one, scipy, and itself under masks and snapshots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammaln, logsumexp

from lineside.falcon.changepoint import BOCPDConfig, SlotBOCPD

EXACT = BOCPDConfig(slots=400, clip_scales=np.inf, dtype="<f8")


def dense(x, hazard=0.01, kappa=1.0, alpha=1.0, beta=1.0):
    """Adams and MacKay's filter with every run length: (log predictive, MAP run length) per point."""
    log_weight, mean, k, a, b = (
        np.zeros(1),
        np.zeros(1),
        *(np.array([v]) for v in (kappa, alpha, beta)),
    )
    surprise, longest = [], []
    for point in x:
        scale = b * (k + 1) / (a * k)
        z = (point - mean) ** 2 / scale
        log_p = gammaln(a + 0.5) - gammaln(a) - 0.5 * np.log(2 * np.pi * a * scale)
        log_p -= (a + 0.5) * np.log1p(z / (2 * a))
        joint = log_weight + log_p
        evidence = logsumexp(joint)
        surprise.append(evidence)
        log_weight = np.concatenate([[np.log(hazard)], joint - evidence + np.log1p(-hazard)])
        b = np.concatenate([[beta], b + k * (point - mean) ** 2 / (2 * (k + 1))])
        mean = np.concatenate([[0.0], (k * mean + point) / (k + 1)])
        k, a = np.concatenate([[kappa], k + 1]), np.concatenate([[alpha], a + 0.5])
        longest.append(int(np.argmax(log_weight)))
    return np.array(surprise), np.array(longest)


def stepped(seed, n=300):
    """A series whose level shifts a few times, standardised noise."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.normal(0, 4, 6), n // 6)
    return level + rng.normal(size=len(level))


def feed(detector, series):
    surprise, longest = [], []
    for point in np.asarray(series).T:
        surprise.append(detector.update(point))
        longest.append(detector.run_lengths())
    return np.array(surprise).T, np.array(longest).T


def test_with_a_slot_per_run_it_is_the_exact_filter():
    x = stepped(0)
    surprise, longest = feed(SlotBOCPD(1, EXACT), x[None])
    exact, exact_longest = dense(x)
    np.testing.assert_allclose(surprise[0], exact, atol=1e-10)
    assert (longest[0] == exact_longest).all()


@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
def test_32_slots_name_the_run_that_the_exact_filter_names(dtype):
    series = np.array([stepped(seed) for seed in range(8)])
    config = BOCPDConfig(clip_scales=np.inf, dtype=dtype)
    surprise, longest = feed(SlotBOCPD(len(series), config), series)
    exact = [dense(x) for x in series]
    agree = np.mean(longest == np.array([e[1] for e in exact]))
    assert agree >= 0.98, agree
    assert np.abs(surprise - np.array([e[0] for e in exact])).mean() < 0.01


def test_the_first_predictive_is_scipys_student_t():
    detector = SlotBOCPD(3, EXACT)
    points = np.array([-2.0, 0.3, 5.0])
    expected = stats.t(df=2, loc=0, scale=np.sqrt(2)).logpdf(points)
    np.testing.assert_allclose(detector.update(points), expected, atol=1e-12)


@given(
    seed=st.integers(0, 1000),
    gaps=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=40),
    indexed=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_series_sees_only_its_own_points(seed, gaps, indexed):
    """Fed together under masks, by NaN or by index, each series is as if it were alone."""
    known = np.array(gaps).T
    x = np.random.default_rng(seed).normal(0, 2, known.shape)
    together = SlotBOCPD(4)
    for column in range(known.shape[1]):
        if indexed:
            rows = np.flatnonzero(known[:, column])
            together.update(x[rows, column], rows)
        else:
            together.update(np.where(known[:, column], x[:, column], np.nan))
    for row in range(4):
        alone = SlotBOCPD(1)
        feed(alone, x[row, known[row]][None])
        assert alone.run_lengths()[0] == together.run_lengths()[row]
        assert (
            alone.snapshot()[24 : 24 + 4 * 32]
            == together.snapshot()[24:][row * 128 : (row + 1) * 128]
        )


def test_missing_points_have_no_density():
    surprise = SlotBOCPD(2).update([np.nan, 0.0])
    assert np.isnan(surprise).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
@given(seed=st.integers(0, 1000), cut=st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_a_restored_filter_goes_on_exactly(dtype, seed, cut):
    x = np.random.default_rng(seed).normal(0, 2, (5, 80))
    config = BOCPDConfig(dtype=dtype)
    first = SlotBOCPD(5, config)
    feed(first, x[:, :cut])
    second = SlotBOCPD(5, config)
    second.restore(first.snapshot())
    for one, other in zip(feed(first, x[:, cut:]), feed(second, x[:, cut:]), strict=True):
        assert one.tobytes() == other.tobytes()
    assert first.snapshot() == second.snapshot()


def test_a_snapshot_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        SlotBOCPD(1, BOCPDConfig(slots=8)).restore(SlotBOCPD(1).snapshot())


def test_runs_are_not_bounded():
    """A ring of run lengths would report a sliding start; slots name the true one."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(5, 1, 50), rng.normal(0, 1, 3000)])
    _, longest = feed(SlotBOCPD(1), x[None])
    assert abs(int(longest[0, -1]) - 3000) <= 3


def test_an_outlier_is_no_change_but_a_new_level_is():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 200))
    x[0, 100] = 1e9
    x[1, 100:] += 6
    _, longest = feed(SlotBOCPD(2), x)
    assert longest[0, 120] > 110
    assert abs(int(longest[1, 120]) - 21) <= 1


def test_growing_leaves_the_old_series_alone():
    x = np.random.default_rng(3).normal(size=(2, 50))
    grown, fixed = SlotBOCPD(2), SlotBOCPD(2)
    feed(grown, x)
    feed(fixed, x)
    grown.grow(5)
    assert grown.series == 5
    assert grown.run_lengths()[:2].tolist() == fixed.run_lengths().tolist()
    assert grown.run_lengths()[2:].tolist() == [0, 0, 0]
