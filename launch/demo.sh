#!/usr/bin/env bash
# Pretrains configs/demo.toml on this machine, interrupts it, resumes it, looks at what it learnt, and takes it
# to the phone. Run by `make demo`.
set -euo pipefail

run=runs/make-demo # of its own, as it is begun anew every time
stop_after=500 # steps; somewhere in the middle of the first stage
# Large pages for what XLA allocates in every step, where the C library is glibc: measured 1.2 times as fast on a CPU.
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
say() { printf '\n== %s\n' "$*"; }

rm -rf -- "$run"
say "Pretraining a tiny SqueezeBERT on the documentation inside this Python installation"
bertzoo pretrain demo --run_dir="$run" &
trainer=$!
trap 'kill "$trainer" 2>/dev/null || true' EXIT
until [ -s "$run/metrics.jsonl" ] && grep -q "\"step\": $stop_after," "$run/metrics.jsonl"; do
  kill -0 "$trainer" 2>/dev/null || { wait "$trainer"; exit 1; }
  sleep 0.2
done
say "Interrupting it, as a preempted machine would"
kill -TERM "$trainer"
code=0
wait "$trainer" || code=$?
trap - EXIT
[ "$code" -eq 3 ] || { echo "demo: the interrupted run exited with $code, not 3" >&2; exit 1; }

say "The same command again: it resumes"
bertzoo pretrain demo --run_dir="$run"

say "Curves"
bertzoo report "$run"

say "Held-out text it has never seen"
bertzoo evaluate "$run" --below_unigram=0.3

say "What it puts into a blank: after minutes, frequent words, and words of the sentence"
bertzoo predict "$run" --top=3 \
  'The first argument [MASK] be an array of integers.' \
  'Return true if the [MASK] is empty, false otherwise.' \
  'The [MASK] of the array must be equal to n.'

say "A file for phones: run in LiteRT, compared with the model, and then written"
bertzoo convert "$run" "$run/phone.tflite" --to=litert --lengths=32,64

say "How fast it is on this machine"
bertzoo benchmark "$run/phone.tflite" --lengths=32,64

cat <<TEXT

== What to try next
. .venv/bin/activate                                  first, in this terminal: puts bertzoo on its path
bertzoo config demo                                   every setting of this run
bertzoo pretrain demo --data.source='my/*.txt' --run_dir=runs/mine
                                                      the same on your own text (blank lines between documents)
bertzoo pretrain squeezebert_mini --data.source='my/*.txt' --run_dir=runs/squeezebert_mini
                                                      a larger model, 3 hours on 2 cores
bertzoo pretrain squeezebert --data.source='my/*.txt.xz' --run_dir=runs/squeezebert
                                                      the paper's recipe; on a TPU, unchanged
$run/report.md                              what you have just seen, as a page
TEXT
