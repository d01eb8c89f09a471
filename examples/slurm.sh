#!/bin/bash
#SBATCH --job-name=scaseg
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
#
# Train on SLURM: one process for each GPU of each node.
#
#     sbatch examples/slurm.sh own_folder --data /shared/photos --out /shared/runs/first
#
# What stands behind the script's name goes to `scaseg train`; options of sbatch stand before it and
# replace the lines above. The environment that sbatch is called in must have scaseg in its PATH.
#
# Two minutes before the time is up every process gets SIGTERM, the state is saved, and the exit
# code is 143: the job is queued again, and goes on from there. After the loss of a node SLURM
# queues it again by itself (--requeue), and it goes on from the last saved state.

srun --kill-on-bad-exit=1 scaseg train "$@" --auto-resume \
    --devices "$SLURM_NTASKS_PER_NODE" --machine.nodes "$SLURM_NNODES"
code=$?
if [ "$code" -eq 143 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
