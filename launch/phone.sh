#!/usr/bin/env bash
# Times a LiteRT file of `bertzoo convert --to=litert` on an Android phone, and checks its outputs there.
#
#   launch/phone.sh NAME.tflite --benchmark_model=PATH [--serial=SERIAL] [--delegates=xnnpack,cpu,gpu,nnapi] \
#     [--threads=1,4] [--runs=40] [--rows=N] [--folder=/data/local/tmp/bertzoo] [--keep] [--dry-run]
#
# PATH is LiteRT's benchmark_model built for the phone (docs/phone.md). The script pushes it and the file over adb. It
# times every signature with each delegate and number of threads, `--runs` times. With each delegate the phone then
# computes the golden inputs in NAME.tflite.files and, for a fine-tuned model, the rows on which it was scored (the
# first N). Their outputs are compared and scored on this machine. The pushed files are removed at the end, unless
# --keep is set. The table shows how many operators a delegate took. If it took none, because the phone lacks
# it, or if its outputs are wrong, the script prints so and exits with 1.
set -euo pipefail
home=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=launch/common.sh
. "$home/common.sh"

file="" tool="" serial="" delegates=xnnpack threads=1,4 runs=40 rows="" folder=/data/local/tmp/bertzoo keep=false
while (($#)); do
  case $1 in
    --benchmark_model=*) tool=${1#*=} ;;
    --serial=*) serial=${1#*=} ;;
    --delegates=*) delegates=${1#*=} ;;
    --threads=*) threads=${1#*=} ;;
    --runs=*) runs=${1#*=} && whole --runs "$runs" 1 ;;
    --rows=*) rows=${1#*=} && whole --rows "$rows" 0 ;;
    --folder=*) folder=${1#*=} ;;
    --keep) keep=true ;;
    --dry-run) dry_run=true ;;
    --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    -*) die "unknown option $1; --help names them" ;;
    *) [[ -z $file ]] || die "$file and $1: one file at a time" && file=$1 ;;
  esac
  shift
done
[[ -n $file ]] || die "no file is given: $me NAME.tflite --benchmark_model=PATH"
[[ -n $tool ]] || die "--benchmark_model=PATH is missing: LiteRT's tool of that name, built for the phone (docs/phone.md)"
[[ -r $file ]] || die "$file cannot be read"
[[ -r $tool ]] || die "--benchmark_model=$tool cannot be read"
# The phone's shell removes this folder, so its path must be safe there without quotes.
[[ $folder =~ ^/data/local/tmp/[A-Za-z0-9_.-]+$ && $folder != */.. && $folder != */. ]] ||
  die "--folder=$folder is not a folder in /data/local/tmp, the only place where a phone runs pushed programs"
[[ -n $delegates ]] || die "--delegates= names none of cpu, xnnpack, gpu and nnapi; leave it out, or name some"
[[ -n $threads ]] || die "--threads= names no number of threads; leave it out, or give some, such as 1,4"
IFS=, read -ra delegates <<<"$delegates"
IFS=, read -ra threads <<<"$threads"
for count in "${threads[@]}"; do whole --threads "$count" 1; done

# Set the options of benchmark_model for a delegate, and of the check of its outputs: GPUs and NNAPI compute in float16.
chosen=() limit=()
choose() { # choose DELEGATE
  limit=()
  case $1 in
    cpu) chosen=(--use_xnnpack=false) ;;
    xnnpack) chosen=(--use_xnnpack=true) ;;
    gpu) chosen=(--use_gpu=true) limit=(--float16) ;;
    nnapi) chosen=(--use_nnapi=true) limit=(--float16) ;;
    *) die "--delegates: ${1:-nothing between two commas} is none of cpu, xnnpack, gpu and nnapi" ;;
  esac
}
for delegate in "${delegates[@]}"; do choose "$delegate"; done
need adb "install Android's platform tools"
need bertzoo "install it, or activate the environment that has it"

adb=(adb)
[[ -z $serial ]] || adb+=(-s "$serial")
if ! "$dry_run"; then
  said=$("${adb[@]}" get-state 2>&1) && [[ $said == device ]] ||
    fail "adb finds no single phone that is ready${serial:+ with the serial $serial} ($said); if there are several, name one with --serial"
fi
work=$(mktemp -d)
# shellcheck disable=SC2317,SC2329 # the trap calls it
leave() {
  rm -rf -- "$work"
  "$keep" || "$dry_run" || "${adb[@]}" shell "rm -rf $folder" || say "$folder could not be removed from the phone"
}
trap leave EXIT

pack=(bertzoo phone pack "$file" "$work/packed")
[[ -z $rows ]] || pack+=("--rows=$rows")
act "${pack[@]}"
act "${adb[@]}" shell "rm -rf $folder && mkdir -p $folder"
act "${adb[@]}" push "$tool" "$folder/benchmark_model"
act "${adb[@]}" push "$file" "$folder/model.tflite"
act "${adb[@]}" push "$home/phone_rows.sh" "$folder/phone_rows.sh"
act "${adb[@]}" push "$work/packed" "$folder/"
act "${adb[@]}" shell "chmod 755 $folder/benchmark_model"

# Print the last number that benchmark_model printed after TEXT, divided by DIVISOR, or - if there is none.
said() { # said FILE TEXT DIVISOR
  awk -v text="$2" -v by="$3" '{ at = index($0, text); if (at) { split(substr($0, at + length(text)), x, /[^0-9.e+]/); n = x[1] } }
    END { if (n == "") print "-"; else printf "%.2f", n / by }' "$1"
}

# Print how many operators a delegate took, and of how many. Print nothing if benchmark_model does not say that it
# applied the delegate; it then times the CPU and exits with 0. Every signature's graph has a line, and
# XNNPACK has one for the operators that a GPU leaves.
taken() { # taken FILE DELEGATE
  [[ $2 != cpu ]] || { echo - && return; }
  awk -v name="$2" '{ line = tolower($0) }
    index(line, "though " name " delegate is explicitly applied") { refused = 1 }
    index(line, "applied " name " delegate, and the model graph will be ") { applied = 1; whole = line ~ /completely/ }
    line ~ "replacing [0-9]+ out of [0-9]+ node.s. with delegate .[a-z]*" name {
      split(substr(line, index(line, "replacing ")), word, " "); took += word[2]; all += word[5] }
    END { if (refused || !(applied || took)) exit; if (all) print took "/" all; else print whole ? "all" : "some" }' "$1"
}

# Print the line that says why benchmark_model failed or applied no delegate; if there is none, ELSE or the last line.
why() { # why FILE [ELSE]
  grep -E '^ERROR|^WARN|unsupported|will not be executed' "$1" | grep -v 'Benchmarking failed' | tail -n 1 | grep . ||
    echo "${2:-$(tail -n 1 "$1")}"
}

if "$dry_run"; then
  signatures="length_128 NAMES SHAPES"
else
  signatures=$(<"$work/packed/signatures")
fi
wrong=0
declare -A absent=()
printf '%-8s %7s  %-12s %10s %10s %12s %12s\n' delegate threads signature 'mean ms' 'median ms' 'memory MB' 'operators'
for delegate in "${delegates[@]}"; do
  choose "$delegate"
  for count in "${threads[@]}"; do
    while read -r signature names shapes; do
      words="cd $folder && ./benchmark_model --graph=model.tflite --signature_to_run_for=$signature --input_layer=$names"
      files=""
      for name in ${names//,/ }; do files+="${files:+,}$name:packed/timed/$signature/$name"; done
      words+=" --input_layer_shape=$shapes --input_layer_value_files=$files"
      words+=" --num_runs=$runs --min_secs=0 --num_threads=$count ${chosen[*]}"
      if "$dry_run"; then
        act "${adb[@]}" shell "$words"
      elif ! "${adb[@]}" shell "$words" </dev/null >"$work/said" 2>&1; then
        say "$delegate, $count threads, $signature: benchmark_model failed: $(why "$work/said")"
        wrong=1
      elif operators=$(taken "$work/said" "$delegate") && [[ -z $operators ]]; then
        say "$delegate, $count threads, $signature: not applied, so the CPU was timed:" \
          "$(why "$work/said" "benchmark_model does not say why")"
        wrong=1 absent[$delegate]=yes
      else
        printf '%-8s %7s  %-12s %10s %10s %12s %12s\n' "$delegate" "$count" "$signature" \
          "$(said "$work/said" 'Inference (avg): ' 1000)" "$(said "$work/said" 'median=' 1000)" \
          "$(said "$work/said" 'overall=' 1)" "$operators"
      fi
    done <<<"$signatures"
  done
done

for delegate in "${delegates[@]}"; do
  [[ -z ${absent[$delegate]-} ]] || continue
  choose "$delegate"
  words="cd $folder && sh phone_rows.sh --num_threads=${threads[0]} ${chosen[*]}"
  if "$dry_run"; then
    act "${adb[@]}" shell "$words"
    act "${adb[@]}" pull "$folder/given" "$work/given"
    act bertzoo phone judge "$file" "$work/packed" "$work/given" "${limit[@]}"
    continue
  fi
  say "$delegate: $(wc -l <"$work/packed/rows/list") rows, one start of benchmark_model for each"
  rm -rf -- "$work/given"
  if ! "${adb[@]}" shell "$words" </dev/null >"$work/said" 2>&1; then
    say "$delegate: benchmark_model failed: $(why "$work/said")"
    wrong=1
    continue
  fi
  "${adb[@]}" pull "$folder/given" "$work/given" >/dev/null || fail "adb could not fetch the phone's outputs"
  bertzoo phone judge "$file" "$work/packed" "$work/given" "${limit[@]}" || wrong=1
done
exit "$wrong"
