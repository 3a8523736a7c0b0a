#!/bin/bash
#SBATCH --job-name=bss
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --signal=TERM@120
# Not run here. One run on the GPUs of two nodes, a process each: sbatch docs/train_slurm.sh RUN.json
# Two minutes before its time is up all processes save and exit; sbatch again continues. The jobs of
# a sweep are queued again by engine slurm: docs/machines/many.md.
exec srun --kill-on-bad-exit=1 .venv/bin/python -m bss train "$1" --coordinator=auto
