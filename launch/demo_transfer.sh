#!/usr/bin/env bash
# Pretrains configs/demo_teacher.toml and trains the student of configs/demo_transfer.toml with it.
# Run by `make demo-transfer`.
set -euo pipefail

teacher=runs/make-demo-teacher student=runs/make-demo-student # used by this script only, which deletes them first
say() { printf '\n== %s\n' "$*"; }

rm -rf -- "$teacher" "$student"
say "A teacher: a tiny IB-BERT on the documentation inside this Python installation"
bertzoo pretrain demo_teacher --run_dir="$teacher"

say "Its student: a tiny MobileBERT, taught layer by layer, then by what the teacher says of masked tokens"
bertzoo transfer demo_transfer --teacher="$teacher" --run_dir="$student"

say "Curves of the student"
bertzoo report "$student"

say "Teacher and student on held-out text"
bertzoo evaluate "$teacher" --hidden_below_unigram=1.2
bertzoo evaluate "$student" --hidden_below_unigram=1.2

say "Where they look"
bertzoo inspect attention "$student" --teacher="$teacher" --text='The argument must be an array of integers.' --layers=1,2 \
  --out="$student/attention.png"
