import pytest

from scaseg.losses import inverse_class_weights, paper_class_weights


def test_worked_by_hand():
    """1000 pixels: 500 + 300 = 80 %, + 120 = 92 % crosses 85 %, so eta = 0.12."""
    found = paper_class_weights([500, 300, 120, 60, 12, 8, 0])
    # eta / f: 0.24 -> ceil(log10) = 0; 0.4 -> 0; 1 -> 0; 2 -> 1; 10 -> 1; 15 -> 2; never -> 0
    assert found.eta == pytest.approx(0.12)
    assert found.weights == (1, 1, 1, 2, 2, 4, 0)


def test_a_class_ten_times_as_frequent_weighs_half():
    """log10(eta / f) = -1 exactly: no rounding may lift it to 0."""
    assert paper_class_weights([700, 70, 70, 70, 70, 20]).weights[0] == 0.5


@pytest.mark.parametrize("power", range(1, 16))
def test_whole_powers_of_ten_are_exact(power):
    # the first class is frequent and alone: eta is its own frequency
    assert paper_class_weights([10**power, 1]).weights == (1, 2.0**power)


def test_one_class():
    assert paper_class_weights([5]).weights == (1,)


@pytest.mark.parametrize("pixels", [[5], [600, 300, 100, 0], [1, 10**12], [0, 7, 7, 0]])
def test_inverse_weights_make_classes_equal(pixels):
    weights = inverse_class_weights(pixels)
    shares = [count * weight for count, weight in zip(pixels, weights, strict=True) if count]
    assert shares == pytest.approx([shares[0]] * len(shares))
    assert sum(shares) == pytest.approx(sum(pixels))  # a pixel weighs 1 on average
    assert all(weight == 0 for count, weight in zip(pixels, weights, strict=True) if not count)


@pytest.mark.parametrize("weigh", [paper_class_weights, inverse_class_weights])
@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ([0, 0], "no labelled pixel"),
        ([], "no labelled pixel"),
        ([3, -1], "negat"),
        ([1, -1], "neg"),
    ],
)
def test_nonsense_is_refused(weigh, pixels, message):
    with pytest.raises(ValueError, match=message):
        weigh(pixels)
