#!/usr/bin/env bash
# Times LiteRT files of `bertzoo convert` on an Android phone beside a baseline, and checks their outputs there.
#
#   launch/phone.sh NAME.tflite … --benchmark_model=PATH [--baseline=FILE] [--delegates=xnnpack,cpu,gpu,nnapi] \
#     [--threads=1,4] [--runs=40] [--rows=N] [--serial=SERIAL] [--folder=/data/local/tmp/bertzoo] [--keep] [--dry-run]
#
# PATH is LiteRT's program of that name, built for the phone (docs/phone.md). The script pushes it and the files
# over adb, and times every file `--runs` times with each delegate and number of threads. The table has the baseline's
# median over the file's, as `speed`. The baseline is the file that --baseline names, such as BERT-base's, or else the
# first file. With each delegate the phone then computes the golden inputs in NAME.tflite.files and, for a fine-tuned
# model, the scored examples (the first N). Their outputs are compared and scored on this machine. The pushed
# files are removed at the end, unless --keep is set. The table has the number of operators on a delegate. If it is 0,
# because the phone lacks the delegate, or if outputs are wrong, the script prints this and exits with 1.
set -euo pipefail
home=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=launch/common.sh
. "$home/common.sh"

files=() baseline="" tool="" serial="" delegates=xnnpack threads=1,4 runs=40 rows=""
folder=/data/local/tmp/bertzoo keep=false
add() { # add FILE
  local other
  for other in "${files[@]}"; do [[ $other != "$1" ]] || die "$1 is named twice; name each file once"; done
  files+=("$1")
}
while (($#)); do
  case $1 in
    --benchmark_model=*) tool=${1#*=} ;;
    --baseline=*) baseline=${1#*=} ;;
    --serial=*) serial=${1#*=} ;;
    --delegates=*)
      delegates=${1#*=}
      [[ -n $delegates ]] || die "--delegates= names none of cpu, xnnpack, gpu and nnapi; leave it out, or name some"
      ;;
    --threads=*)
      threads=${1#*=}
      [[ -n $threads ]] || die "--threads= names no number of threads; leave it out, or give some, such as 1,4"
      ;;
    --runs=*) runs=${1#*=} && whole --runs "$runs" 1 ;;
    --rows=*) rows=${1#*=} && whole --rows "$rows" 0 ;;
    --folder=*) folder=${1#*=} ;;
    --keep) keep=true ;;
    --dry-run) dry_run=true ;;
    --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    -*) die "unknown option $1; --help names them" ;;
    *) add "$1" ;;
  esac
  shift
done
((${#files[@]})) || die "name a file: $me NAME.tflite --benchmark_model=PATH"
[[ -z $baseline ]] || { add "$baseline" && files=("$baseline" "${files[@]::${#files[@]}-1}"); }
for file in "${files[@]}"; do
  [[ $file == *.tflite ]] || die "$file is no .tflite file; convert the model with --to=litert"
  [[ -r $file ]] || die "$file cannot be read"
done
[[ -n $tool ]] || die "--benchmark_model=PATH is missing: LiteRT's program of that name, built for the phone (docs/phone.md)"
[[ -r $tool ]] || die "--benchmark_model=$tool cannot be read"
# The phone's shell removes this folder, so its path must be safe there without quotes.
[[ $folder =~ ^/data/local/tmp/[A-Za-z0-9_.-]+$ && $folder != */.. && $folder != */. ]] ||
  die "--folder=$folder is not a folder in /data/local/tmp, the only place where a phone runs pushed programs"
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

for at in "${!files[@]}"; do
  mkdir "$work/$at"
  pack=(bertzoo phone pack "${files[at]}" "$work/$at/packed")
  [[ -z $rows ]] || pack+=("--rows=$rows")
  act "${pack[@]}"
done
act "${adb[@]}" shell "rm -rf $folder && mkdir -p $folder"
act "${adb[@]}" push "$tool" "$folder/benchmark_model"
act "${adb[@]}" push "$home/phone_rows.sh" "$folder/phone_rows.sh"
for at in "${!files[@]}"; do
  act "${adb[@]}" push "$work/$at" "$folder/"
  act "${adb[@]}" push "${files[at]}" "$folder/$at/model.tflite"
done
act "${adb[@]}" shell "chmod 755 $folder/benchmark_model"

# Print the command that times a file on the phone. It runs in the file's folder there.
command_of() { # command_of SIGNATURE NAMES SHAPES THREADS
  local timed=packed/timed/$1 name inputs=""
  for name in ${2//,/ }; do inputs+="${inputs:+,}$name:$timed/$name"; done
  printf '%s ' "../benchmark_model --graph=model.tflite --signature_to_run_for=$1 --input_layer=$2" \
    "--input_layer_shape=$3 --input_layer_value_files=$inputs" \
    "--num_runs=$runs --min_secs=0 --num_threads=$4 ${chosen[*]}"
}

# Print the last number that benchmark_model printed after TEXT, divided by DIVISOR, or - if there is none.
said() { # said FILE TEXT DIVISOR
  awk -v text="$2" -v by="$3" '{ at = index($0, text); if (at) { split(substr($0, at + length(text)), x, /[^0-9.e+]/); n = x[1] } }
    END { if (n == "") print "-"; else printf "%.2f", n / by }' "$1"
}

# Print the number of operators on a delegate, and of all. Print nothing if benchmark_model does not report that it
# applied the delegate; it then times the CPU and exits with 0. Every signature's graph has a line, and
# XNNPACK has one for the operators that do not run on the GPU.
taken() { # taken FILE DELEGATE
  [[ $2 != cpu ]] || { echo - && return; }
  awk -v name="$2" '{ line = tolower($0) }
    index(line, "though " name " delegate is explicitly applied") { refused = 1 }
    index(line, "applied " name " delegate, and the model graph will be ") { applied = 1; whole = line ~ /completely/ }
    line ~ "replacing [0-9]+ out of [0-9]+ node.s. with delegate .[a-z]*" name {
      split(substr(line, index(line, "replacing ")), word, " "); took += word[2]; all += word[5] }
    END { if (refused || !(applied || took)) exit; if (all) print took "/" all; else print whole ? "all" : "some" }' "$1"
}

# Print the line with the reason why the program failed or applied no delegate; without one, ELSE or the last line.
why() { # why FILE [ELSE]
  grep -E '^ERROR|^WARN|unsupported|will not be executed' "$1" | grep -v 'Benchmarking failed' | tail -n 1 | grep . ||
    echo "${2:-$(tail -n 1 "$1")}"
}

# Print how many times as fast as the baseline's milliseconds BASE a file's are.
speed() { # speed BASE MILLISECONDS
  awk -v base="$1" -v median="$2" 'BEGIN { if (base > 0 && median > 0) printf "%.2f", base / median; else print "-" }'
}

wrong=0
declare -A absent=() base=()
row() { printf '%-8s %7s  %-12s %10s %10s %6s %12s %12s  %s\n' "$@"; }
row delegate threads signature 'mean ms' 'median ms' speed 'memory MB' 'operators' file
for delegate in "${delegates[@]}"; do
  choose "$delegate"
  for count in "${threads[@]}"; do
    for at in "${!files[@]}"; do
      if "$dry_run"; then signatures="length_128 NAMES SHAPES"; else signatures=$(<"$work/$at/packed/signatures"); fi
      while read -r signature names shapes; do
        setting="$delegate, $count threads, $signature"
        where=$setting${files[1]:+, ${files[at]##*/}}
        words="cd $folder/$at && $(command_of "$signature" "$names" "$shapes" "$count")"
        if "$dry_run"; then
          act "${adb[@]}" shell "${words% }"
          continue
        elif ! "${adb[@]}" shell "${words% }" </dev/null >"$work/said" 2>&1; then
          say "$where: benchmark_model failed: $(why "$work/said")"
          wrong=1
          continue
        fi
        mean=$(said "$work/said" 'Inference (avg): ' 1000) median=$(said "$work/said" 'median=' 1000)
        memory=$(said "$work/said" 'overall=' 1) operators=$(taken "$work/said" "$delegate")
        if [[ -z $operators ]]; then
          say "$where: not applied, so the CPU was timed: $(why "$work/said" "benchmark_model does not say why")"
          wrong=1 absent[$at $delegate]=yes
        else
          ((at)) || base[$setting]=$median
          row "$delegate" "$count" "$signature" "$mean" "$median" "$(speed "${base[$setting]-}" "$median")" \
            "$memory" "$operators" "${files[at]##*/}"
        fi
      done <<<"$signatures"
    done
  done
done

for at in "${!files[@]}"; do
  for delegate in "${delegates[@]}"; do
    [[ -z ${absent[$at $delegate]-} ]] || continue
    choose "$delegate"
    where=$delegate${files[1]:+, ${files[at]##*/}}
    words="cd $folder/$at && sh ../phone_rows.sh --num_threads=${threads[0]} ${chosen[*]}"
    judge=(bertzoo phone judge "${files[at]}" "$work/$at/packed" "$work/$at/given" "${limit[@]}")
    if "$dry_run"; then
      act "${adb[@]}" shell "$words"
      act "${adb[@]}" pull "$folder/$at/given" "$work/$at/given"
      act "${judge[@]}"
      continue
    fi
    say "$where: $(wc -l <"$work/$at/packed/rows/list") rows, one start of benchmark_model for each"
    rm -rf -- "$work/$at/given"
    if ! "${adb[@]}" shell "$words" </dev/null >"$work/said" 2>&1; then
      say "$where: benchmark_model failed: $(why "$work/said")"
      wrong=1
      continue
    fi
    "${adb[@]}" pull "$folder/$at/given" "$work/$at/given" >/dev/null || fail "adb could not fetch the phone's outputs"
    "${judge[@]}" || wrong=1
  done
done
exit "$wrong"
