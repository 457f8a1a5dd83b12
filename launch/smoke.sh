#!/usr/bin/env bash
# The smoke test of a machine's devices: BERT-base for 20 steps, the demo for 50, with their speed and losses.
#
#   launch/smoke.sh FOLDER [OPTIONS of `bertzoo pretrain bert_base`]
#
# It needs no data: both runs read the documentation inside Python. The last 10 steps of BERT-base are timed, and five
# before them are profiled. FOLDER gets the runs, the profile, and smoke.txt, which is all that this prints: paste it
# into the issue form "TPU smoke test". Exits with 1 if the demo's losses are not the recorded ones (launch/smoke.py).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

[[ ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit; }
[[ -n ${1:-} && $1 != -* ]] || { echo "smoke.sh: FOLDER is missing: where do the runs go?" >&2 && exit 2; }
folder=$1 && shift
mkdir -p -- "$folder"

smoke() {
  bertzoo --version
  bertzoo tokenize embedded:python "$folder/corpus" --config=demo
  bertzoo pretrain bert_base '--stages=[{steps=20, batch_size=256, max_length=128}]' --optimizer.schedule.warmup_steps=10 \
    --data.source="$folder/corpus" --data.tokenizer.vocab_size=1024 --run.log_every=10 --run.evaluate_every=20 \
    --run.save_every=20 --run.profile_start=4 --run.profile_steps=5 --run_dir="$folder/bert_base" "$@"
  bertzoo pretrain demo '--stages.*.steps=25' --data.source="$folder/corpus" --run.log_every=25 --run.evaluate_every=25 \
    --run_dir="$folder/demo"
  python "$here/smoke.py" "$folder"
}
smoke "$@" 2>&1 | tee "$folder/smoke.txt"
