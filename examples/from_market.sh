#!/bin/sh
# Trains DwoPP on Market-1501 in ten tasks, tests it through faiss-flat, publishes it, and loads it by name.
#
#   examples/from_market.sh [DATASETS] [NAME] [KEY VALUE ...]
#
# DATASETS is the folder that holds market1501/ (default: datasets), NAME that of the entry (default: dwopp-market1501).
# The same command resumes a run that was stopped. For another benchmark, set BENCHMARK: msmt17v1-10, msmt17v2-10,
# veri776-10 or lreid-order1-noduke. HUB=OWNER/NAME also uploads the entry to Hugging Face's hub.
#
# What to expect on Market-1501 (nobody ran lreid on its images yet):
# * Results of the paper (DwoPP, BMVC 2022, Table 1, mean of three runs): after the last task mAP 67.2 and Rank-1 84.6;
#   averaged over the tasks 57.6 and 77.1. Fine-tuning (METHOD.NAME dmml_ft): 56.3 and 77.8, then 49.1 and 71.5.
# * Time: ten tasks of 600 epochs, 12,000 steps of 192 images. Computed from the measured speed on an H100: 11 minutes
#   of steps in bf16 (TRAIN.PRECISION bf16), 16 in tf32; from an H200: 46 minutes in fp32, which is the default. On two
#   CPU cores it would take more than a day.
# * Memory of the GPU: 7 GiB in bf16, 13 GiB in tf32 and fp32. The images of a task take 0.13 GB of RAM when decoded,
#   all of them 1.3 GB.
set -eu

data=${1:-datasets}
name=${2:-dwopp-market1501}
[ $# -lt 2 ] || shift 2
[ $# -ne 1 ] || shift
benchmark=${BENCHMARK:-market1501-10}
run=runs/$name
zoo=runs/zoo

if [ -e "$run/checkpoints" ]; then
    lreid train --resume --out "$run"
else
    lreid train --config "$benchmark" --config dwopp --out "$run" DATA.ROOT "$data" "$@"
fi
lreid test --checkpoint "$run"
# The data sets are for research only, so the weights are not published under the MIT licence.
lreid zoo publish "$run" "$name" --licence research-only --out "$zoo" ${HUB:+--hub "$HUB"}
LREID_ZOO_CARDS=$zoo lreid test --checkpoint "zoo:$name" DATA.ROOT "$data"
