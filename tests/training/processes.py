"""Trainings of several processes, forked after the imports, as a launcher would start them.

Standard input has a line for each training: {"processes": 2, "arguments": {...}}, with "slurm"
where each is on a node of its own, and "held" where it waits (held.py). The answer is the number of
each process, and after "end" the codes with which they ended.
"""

import json
import os
import sys
import traceback

from lightning_utilities.core.rank_zero import rank_zero_only
from torch.distributed import TCPStore

import scaseg
from scaseg.errors import UserError, WorkError
from tests.training.held import hold


def main():
    # as torchrun's: one for all attempts, with what earlier ones left in it
    store, attempt = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), -1
    children = []
    for line in sys.stdin:
        if line.strip() == "end":
            print(json.dumps([os.waitpid(child, 0)[1] for child in children]), flush=True)
            children = []
            continue
        task = json.loads(line)
        attempt += 1
        for rank in range(task["processes"]):
            if (child := os.fork()) == 0:
                launcher = slurm if task.get("slurm") else torchrun
                launcher(rank, task["processes"], store.port, attempt)
                if task["held"]:
                    hold(*task["held"])
                become(rank, task["arguments"])
            children.append(child)
        print(json.dumps(children), flush=True)


def torchrun(rank, processes, port, attempt):
    """What torchrun sets."""
    if processes > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
        os.environ |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)


def slurm(rank, processes, port, attempt):
    """What srun sets for one process on each of several nodes; the port follows from the job."""
    os.environ |= {"SLURM_NTASKS": str(processes), "SLURM_NNODES": str(processes)}
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank), "SLURM_LOCALID": "0"}
    os.environ |= {"SLURM_NTASKS_PER_NODE": "1", "SLURM_NODELIST": "localhost,elsewhere"}
    os.environ |= {"SLURM_JOB_NAME": "scaseg", "SLURM_JOB_ID": str(port + attempt)}


def become(rank, arguments):
    rank_zero_only.rank = rank  # Lightning has read it when it was imported
    try:
        scaseg.train(quiet=True, **arguments)
        os._exit(0)
    except SystemExit as stop:
        os._exit(stop.code)
    except (UserError, WorkError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    scaseg.train  # noqa: B018  # its imports, once
    main()
