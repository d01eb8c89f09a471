"""The process of a job as it is, but that its training waits after two epochs (FAKE_JOB: hold)."""

import json
import os

from scaseg.comparison.worker import main
from tests.training.held import hold

if __name__ == "__main__":
    hold(2, json.loads(os.environ["FAKE_JOB"])["hold"])
    main()
