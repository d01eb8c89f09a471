"""Train on a Ray cluster by Ray Train: one worker for each GPU.

    RAY_ADDRESS=head:6379 python examples/ray_train.py own_folder /shared/runs/first \
        --workers 16 --per-machine 8 data.root=/shared/photos training.epochs=40

A lost worker or node ends the attempt; Ray starts all workers again, on what is there, and the run
goes on from its last saved state. The run folder and the data must be seen by all machines.
"""

import argparse

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import scaseg


def work(task):
    """One process of the run; Ray Train has told it who the others are."""
    scaseg.train(task["recipe"], task["out"], overrides=task["keys"], auto_resume=True)


def main():
    """Start the workers, and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recipe")
    parser.add_argument("out", help="run folder, shared by all machines")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="settings of the recipe")
    parser.add_argument("--workers", type=int, default=2, help="processes in all")
    parser.add_argument("--per-machine", type=int, help="of them on each machine (all on one)")
    parser.add_argument("--cpu", action="store_true", help="no GPUs")
    options = parser.parse_intermixed_args()
    each = options.per_machine or options.workers
    keys = dict(pair.split("=", 1) for pair in options.keys)
    keys |= {"machine.devices": str(each), "machine.nodes": str(options.workers // each)}
    TorchTrainer(
        work,
        train_loop_config={"recipe": options.recipe, "out": options.out, "keys": keys},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=not options.cpu),
        run_config=RunConfig(
            storage_path=f"{options.out}-ray", failure_config=FailureConfig(max_failures=-1)
        ),
    ).fit()


if __name__ == "__main__":
    main()
