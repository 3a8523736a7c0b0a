#!/bin/bash
# One sweep on all nodes of an allocation: a Ray cluster in it, which ends with it. Not run here.
#   sbatch --nodes=4 --gpus-per-node=8 docs/ray_slurm.sh es_wsd configs/es_wsd.py:gpu
# Further options are the experiment's: --config.setup.engine.devices=8
#SBATCH --job-name=bss
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:TERM@120
set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | cut -d' ' -f1):6379
srun --overlap --nodes=1 --ntasks=1 -w "$head" .venv/bin/ray start --head --port=6379 --block &
sleep 20
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --overlap --nodes=$((SLURM_NNODES - 1)) --exclude="$head" \
        .venv/bin/ray start --address="$address" --block &
    sleep 20
fi
# In the background, so that what Slurm sends two minutes before the end reaches it at once.
.venv/bin/python -m "experiments.$1" --config="$2" --config.engine=ray \
    --config.setup.engine.address="$address" "${@:3}" &
sweep=$!
trap 'kill -TERM $sweep' TERM
wait $sweep || wait $sweep
