#!/bin/sh
# Runs each packed row once in benchmark_model, with its outputs in `given`. launch/phone.sh runs this on the phone,
# in the folder of a file.
set -eu
rm -rf given && mkdir given
while read -r row signature names shapes; do
  files=""
  for name in $(echo "$names" | tr , ' '); do files="$files${files:+,}$name:packed/rows/$row/$name"; done
  ../benchmark_model --graph=model.tflite --signature_to_run_for="$signature" --input_layer="$names" \
    --input_layer_shape="$shapes" --input_layer_value_files="$files" --output_filepath="given/$row" \
    --num_runs=1 --warmup_runs=0 --warmup_min_secs=0 --min_secs=0 "$@" </dev/null >said 2>&1 || {
    cat said
    exit 1
  }
done <packed/rows/list
