#!/usr/bin/env bash
# Times files of `bertzoo convert` on an Android phone beside a baseline, and checks the outputs of LiteRT files there.
#
#   launch/phone.sh NAME.tflite … --benchmark_model=PATH [--baseline=FILE] [--delegates=xnnpack,cpu,gpu,nnapi] \
#     [--threads=1,4] [--runs=40] [--rows=N] [--serial=SERIAL] [--folder=/data/local/tmp/bertzoo] [--keep] [--dry-run]
#   launch/phone.sh NAME.pt …   --speed_benchmark_torch=PATH [--baseline=FILE] [--length=128] [--runs=40] …
#   launch/phone.sh NAME.pte …  --executor_runner=PATH       [--baseline=FILE] [--threads=1,4] [--runs=40] …
#   launch/phone.sh NAME.onnx … --onnxruntime_perf_test=PATH [--baseline=FILE] [--length=128] [--threads=1,4] …
#
# PATH is the runtime's program of that name, built for the phone (docs/phone.md). The script pushes it and the files
# over adb, and times every file `--runs` times with each delegate and number of threads. The table has the baseline's
# median over the file's, as `speed`. The baseline is the file that --baseline names, such as BERT-base's, or else the
# first file. With each delegate the phone then computes the golden inputs in NAME.tflite.files and, for a fine-tuned
# model, the rows on which it was scored (the first N). Their outputs are compared and scored on this machine. The pushed
# files are removed at the end, unless --keep is set. The table shows how many operators a delegate took. If it took
# none, because the phone lacks it, or if its outputs are wrong, the script prints so and exits with 1.
set -euo pipefail
home=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=launch/common.sh
. "$home/common.sh"

declare -A programs=([tflite]=benchmark_model [pt]=speed_benchmark_torch [pte]=executor_runner)
declare -A paths=() && programs[onnx]=onnxruntime_perf_test
warmups=5 # untimed runs of programs that have none of their own, as many as in speed_benchmark_torch's example
files=() baseline="" serial="" delegates="" threads="" runs=40 rows="" length=""
folder=/data/local/tmp/bertzoo keep=false
add() { # add FILE
  local other
  for other in "${files[@]}"; do [[ $other != "$1" ]] || die "$1 is named twice; name each file once"; done
  files+=("$1")
}
while (($#)); do
  case $1 in
    --benchmark_model=* | --speed_benchmark_torch=* | --executor_runner=* | --onnxruntime_perf_test=*)
      name=${1%%=*} && paths[${name#--}]=${1#*=}
      ;;
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
    --length=*) length=${1#*=} && whole --length "$length" 1 ;;
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
suffix=${files[0]##*.}
[[ -v programs[$suffix] ]] || die "${files[0]} is no .tflite, .pt, .pte or .onnx file; convert the model to one of them"
program=${programs[$suffix]}
for file in "${files[@]}"; do
  [[ $file == *.$suffix ]] ||
    die "${files[0]} and $file are of two formats, whose times do not compare; name files of one format"
  [[ -r $file ]] || die "$file cannot be read"
done
for name in "${!paths[@]}"; do
  [[ $name == "$program" ]] || die "--$name runs no .$suffix file; use --$program=PATH"
done
[[ -v paths[$program] ]] ||
  die "--$program=PATH is missing: the runtime's program of that name, built for the phone (docs/phone.md)"
[[ -r ${paths[$program]} ]] || die "--$program=${paths[$program]} cannot be read"
# The phone's shell removes this folder, so its path must be safe there without quotes.
[[ $folder =~ ^/data/local/tmp/[A-Za-z0-9_.-]+$ && $folder != */.. && $folder != */. ]] ||
  die "--folder=$folder is not a folder in /data/local/tmp, the only place where a phone runs pushed programs"
if [[ $suffix == tflite ]]; then
  [[ -z $length ]] || die "--length=$length applies to .pt, .pte and .onnx files; a .tflite file has its own lengths"
else
  [[ -z $delegates ]] || die "--delegates=$delegates applies to .tflite files; a .$suffix file runs on the CPU"
  [[ -z $rows ]] || die "--rows=$rows applies to .tflite files; a .$suffix file is timed with one row"
fi
[[ $suffix != pt || -z $threads ]] ||
  die "--threads=$threads does not apply to .pt files: $program has no such option, so libtorch chooses the number"
case $suffix in tflite | pte) default=xnnpack ;; *) default=cpu ;; esac
IFS=, read -ra delegates <<<"${delegates:-$default}"
IFS=, read -ra threads <<<"${threads:-1,4}"
for count in "${threads[@]}"; do whole --threads "$count" 1; done
[[ $suffix != pt ]] || threads=(-)

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
  [[ -z $length ]] || pack+=("--length=$length")
  act "${pack[@]}"
done
act "${adb[@]}" shell "rm -rf $folder && mkdir -p $folder"
act "${adb[@]}" push "${paths[$program]}" "$folder/$program"
act "${adb[@]}" push "$home/phone_rows.sh" "$folder/phone_rows.sh"
for at in "${!files[@]}"; do
  act "${adb[@]}" push "$work/$at" "$folder/"
  act "${adb[@]}" push "${files[at]}" "$folder/$at/model.$suffix"
done
act "${adb[@]}" shell "chmod 755 $folder/$program"

# Print the command that times a file on the phone. It runs in the file's folder there.
command_of() { # command_of SIGNATURE NAMES SHAPES THREADS
  local timed=packed/timed/$1 name inputs=""
  case $suffix in
    tflite)
      for name in ${2//,/ }; do inputs+="${inputs:+,}$name:$timed/$name"; done
      printf '%s ' "../$program --graph=model.tflite --signature_to_run_for=$1 --input_layer=$2" \
        "--input_layer_shape=$3 --input_layer_value_files=$inputs" \
        "--num_runs=$runs --min_secs=0 --num_threads=$4 ${chosen[*]}"
      ;;
    pt) # makes inputs of ones, of the types that it knows; the files take int64 ids too
      local types=${3//[0-9,]/} formats
      types=int64${types//:/;int64}
      formats=${types//int64/contiguous_format}
      printf '%s ' "../$program --model=model.pt '--input_dims=${3//:/;}' '--input_type=$types'" \
        "'--input_memory_format=$formats' --warmup=$warmups --iter=$runs --report_pep=true"
      ;;
    pte) # the first method of our files returns the names of the inputs
      for name in ${2//,/ }; do inputs+="${inputs:+,}$timed/$name"; done
      printf '%s ' "../$program --model_path=model.pte --method_name=forward --inputs=$inputs" \
        "--num_executions=$((warmups + runs)) --cpu_threads=$4"
      ;;
    onnx) # reads the inputs in test_data_set_0 beside the model, and appends the times to a file
      printf '%s ' "rm -rf test_data_set_0 times && cp -r $timed test_data_set_0 &&" \
        "../$program -e cpu -m times -r $runs -x $4 model.onnx times && cat times"
      ;;
  esac
}

# Print the milliseconds of every timed run that a program printed, except for benchmark_model, which prints a summary.
times() { # times FILE
  case $suffix in
    pt) sed -n 's/.*"metric": "latency".*"value": "\([0-9.e+]*\)".*/\1/p' "$1" | awk '{ print $1 / 1000 }' ;;
    pte) sed -n 's/.*] Iteration [0-9]* of [0-9]*: \([0-9.]*\) ms.*/\1/p' "$1" | tail -n "+$((warmups + 1))" ;;
    onnx) awk -F, 'NF >= 5 && $2 ~ /^[0-9.e-]+$/ { print $2 * 1000 }' "$1" ;;
  esac
}

# Print the mean and the median of one number per line; print nothing without lines.
averages() {
  sort -g | awk '{ x[NR] = $1; sum += $1 }
    END { if (NR) printf "%.2f %.2f", sum / NR, (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2 }'
}

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

# Print the line that says why the program failed or applied no delegate; if there is none, ELSE or the last line.
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
  [[ $suffix != tflite ]] || choose "$delegate"
  for count in "${threads[@]}"; do
    for at in "${!files[@]}"; do
      if "$dry_run"; then signatures="length_128 NAMES SHAPES"; else signatures=$(<"$work/$at/packed/signatures"); fi
      while read -r signature names shapes; do
        setting="$delegate, $count threads, $signature" memory=- operators=- mean="" median=""
        where=$setting${files[1]:+, ${files[at]##*/}}
        words="cd $folder/$at && $(command_of "$signature" "$names" "$shapes" "$count")"
        if "$dry_run"; then
          act "${adb[@]}" shell "${words% }"
          continue
        elif ! "${adb[@]}" shell "${words% }" </dev/null >"$work/said" 2>&1; then
          say "$where: $program failed: $(why "$work/said")"
          wrong=1
          continue
        elif [[ $suffix == tflite ]]; then
          mean=$(said "$work/said" 'Inference (avg): ' 1000) median=$(said "$work/said" 'median=' 1000)
          memory=$(said "$work/said" 'overall=' 1) operators=$(taken "$work/said" "$delegate")
        else
          read -r mean median <<<"$(times "$work/said" | averages)" || true
        fi
        if [[ -z $operators ]]; then
          say "$where: not applied, so the CPU was timed: $(why "$work/said" "$program does not say why")"
          wrong=1 absent[$at $delegate]=yes
        elif [[ -z $median ]]; then
          say "$where: $program printed no run's time; build it as docs/phone.md says"
          wrong=1
        else
          ((at)) || base[$setting]=$median
          row "$delegate" "$count" "$signature" "$mean" "$median" "$(speed "${base[$setting]-}" "$median")" \
            "$memory" "$operators" "${files[at]##*/}"
        fi
      done <<<"$signatures"
    done
  done
done
[[ $suffix == tflite ]] || exit "$wrong"

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
    say "$where: $(wc -l <"$work/$at/packed/rows/list") rows, one start of $program for each"
    rm -rf -- "$work/$at/given"
    if ! "${adb[@]}" shell "$words" </dev/null >"$work/said" 2>&1; then
      say "$where: $program failed: $(why "$work/said")"
      wrong=1
      continue
    fi
    "${adb[@]}" pull "$folder/$at/given" "$work/$at/given" >/dev/null || fail "adb could not fetch the phone's outputs"
    "${judge[@]}" || wrong=1
  done
done
exit "$wrong"
