#!/usr/bin/env bash
# Fine-tunes the model of `make demo` to classify paragraphs of documentation by subject, and classifies three
# sentences with its file for phones. Run by `make demo-phone`, after `make demo`.
set -euo pipefail

model=runs/make-demo run=runs/make-demo-phone labels=runs/make-demo-labels
say() { printf '== %s\n' "$*"; }
[ -d "$model" ] || { echo "demo-phone: $model is missing. Run make demo first." >&2; exit 2; }

rm -rf -- "$run" "$labels"
say "A labelled set: is a paragraph of documentation about arrays, text or files?"
python launch/demo_labels.py "$labels"

say "Fine-tuning the demo's model on it"
bertzoo finetune demo_finetune --data_dir="$labels" --from="$model" --run_dir="$run" 2>&1 |
  grep -E 'dev acc|^1 seed|^bertzoo'

say "A file for phones in int8: run in LiteRT, compared with the model, and scored on the set"
bertzoo convert "$run" "$run/phone.tflite" --to=litert --precision=int8-dynamic --lengths=32,64

say "Three sentences, classified by that file"
bertzoo predict "$run/phone.tflite" \
  'Return the sum of all elements of the matrix along an axis.' \
  'Replace the characters that cannot be encoded.' \
  'Delete a directory and everything that is in it.'
