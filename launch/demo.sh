#!/usr/bin/env bash
# Pretrains configs/demo.toml on this machine, interrupts and resumes it, evaluates the model, and converts it for
# phones. Run by `make demo`. The full output of the training is in RUN/pretrain.log.
set -euo pipefail

run=runs/make-demo # used by this script only, which deletes it first
stop_after=600 # steps; somewhere in the middle of the first stage
say() { printf '== %s\n' "$*"; }
log=$(mktemp)
trap 'rm -f -- "$log"' EXIT
show() { tee -a "$log" | grep --line-buffered -E 'train:|heldout  loss|saved as|^resumed|^bertzoo'; } # the lines that matter

rm -rf -- "$run"
say "Pretraining a tiny SqueezeBERT on the documentation inside this Python installation: about 2 minutes"
bertzoo pretrain demo --run_dir="$run" 2> >(show) &
trainer=$!
trap 'kill "$trainer" 2>/dev/null || true; rm -f -- "$log"' EXIT
until [ -s "$run/metrics.jsonl" ] && grep -q "\"step\": $stop_after," "$run/metrics.jsonl"; do
  kill -0 "$trainer" 2>/dev/null || { wait "$trainer"; exit 1; }
  sleep 0.2
done
say "Interrupting it, as a preempted machine would"
kill -TERM "$trainer"
code=0
wait "$trainer" || code=$?
[ "$code" -eq 3 ] || { echo "demo: the interrupted run exited with $code, not 3" >&2; exit 1; }

say "The same command again: it resumes, and goes on to longer rows"
bertzoo pretrain demo --run_dir="$run" 2> >(show | grep --line-buffered -v train:)
cp "$log" "$run/pretrain.log"

say "Held-out text it has never seen"
bertzoo evaluate "$run" --hidden_below_unigram=1.2 | grep -E 'rows of|MLM loss of hidden|accuracy'

say "What it puts into a blank"
bertzoo predict "$run" --top=3 \
  'The first argument [MASK] be an array of integers.' \
  'If the file does [MASK] exist, an exception is raised.' \
  'The default value [MASK] None.'

say "Files for phones: run in LiteRT, compared with the model, and then written"
bertzoo convert "$run" "$run/phone.tflite" --to=litert --lengths=32 | grep Wrote
bertzoo convert "$run" "$run/phone-int8.tflite" --to=litert --lengths=32 --precision=int8-dynamic | grep Wrote
bertzoo benchmark "$run/phone.tflite" "$run/phone-int8.tflite" --lengths=32 2> >(grep -v '^round' >&2) | grep -v ^speed
bertzoo report "$run" | tail -n 1

cat <<TEXT
== What to try next
. .venv/bin/activate   first, in this terminal: puts bertzoo on its path
bertzoo predict $run 'Return [MASK] if the object is callable.'
bertzoo pretrain demo --data.source='my/*.txt' --run_dir=runs/mine   the same on your own text
bertzoo pretrain squeezebert_mini --data.source='my/*.txt' --run_dir=runs/squeezebert_mini   a larger model, 3 to 4 hours
TEXT
