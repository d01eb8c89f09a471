"""Real photographs on a laptop: forty images, three epochs, and it knows sky from road."""

import json

from scaseg.cli import main
from tests.shared import MOBILENET_V2, SHARED, needs

STANFORD = SHARED / "data" / "stanford_background"


@needs(STANFORD)
@needs(MOBILENET_V2)
def test_forty_photographs_are_enough_to_be_far_above_chance(tmp_path, capsys):
    """Chance: one class everywhere has an mIoU of at most 23.0 / 8 = 2.9 here."""
    main(
        [
            *("train", "--data", str(STANFORD), "--out", str(tmp_path / "run")),
            *("--backbone", "mobilenet_v2", "--backbone-weights", str(MOBILENET_V2)),
            *("--epochs", "3", "--batch-size", "4", "--device", "cpu"),
            *("--data.limit", "40", "--augment.fit", "[120, 160]", "--quiet"),
        ]
    )
    main(["evaluate", "--model", str(tmp_path / "run"), "--device", "cpu", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 143
    assert found["mIoU"] > 12
    assert found["PPA"] > 35
