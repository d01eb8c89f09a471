import numpy as np
import pytest
from PIL import Image

from scaseg.data.decode.image import image_size, read_image, read_labels
from scaseg.data.decode.metadata import ORIENTATION


def test_photographs_are_read_upright(tmp_path):
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:, :10] = 255  # bright on the left
    turned = Image.Exif()
    turned[ORIENTATION] = 6  # the camera was turned: rotate by 90 degrees to see it upright
    Image.fromarray(pixels).save(tmp_path / "photo.jpg", exif=turned, quality=95)
    image = read_image(tmp_path / "photo.jpg")
    assert image.shape == (30, 20, 3)
    assert image[:8].mean() > 200 > 50 > image[12:].mean()  # bright at the top
    assert image_size(tmp_path / "photo.jpg", upright=True) == (30, 20)
    assert image_size(tmp_path / "photo.jpg", upright=False) == (20, 30)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "LA"])
def test_any_photograph_becomes_rgb(mode, tmp_path):
    Image.new("RGB", (8, 6), (200, 200, 200)).convert(mode).save(tmp_path / "photo.png")
    assert read_image(tmp_path / "photo.png").shape == (6, 8, 3)


def test_labels_of_8_and_16_bit_and_palette(tmp_path):
    small = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(small).save(tmp_path / "grey.png")
    large = small.astype(np.uint16) * 40
    Image.fromarray(large).save(tmp_path / "wide.png")
    palette = Image.fromarray(small, mode=None).convert("P")
    palette.putpalette([value for i in range(256) for value in (255 - i, i, 7)])
    palette.putdata(small.flatten().tolist())
    palette.save(tmp_path / "palette.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "grey.png"), small)
    np.testing.assert_array_equal(read_labels(tmp_path / "wide.png"), large)
    np.testing.assert_array_equal(read_labels(tmp_path / "palette.png"), small)


def test_what_cannot_be_labels_is_refused(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "rgb.png")
    Image.new("L", (4, 4)).save(tmp_path / "lossy.jpg")
    with pytest.raises(ValueError, match=r"rgb.png: a RGB label map; give one channel"):
        read_labels(tmp_path / "rgb.png")
    with pytest.raises(ValueError, match=r"lossy.jpg: a JPEG label map"):
        read_labels(tmp_path / "lossy.jpg")


def test_what_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "text.png").write_text("hello")
    Image.new("RGB", (64, 64)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    for name, message in (("text", "not an image"), ("cut", "cannot be read"), ("no", "no such")):
        with pytest.raises(ValueError, match=message) as refused:
            read_image(tmp_path / f"{name}.png")
        assert f"{name}.png" in str(refused.value)
        assert "\n" not in str(refused.value)
