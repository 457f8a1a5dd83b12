#!/usr/bin/env bash
# Submits a run of bertzoo to Slurm, one process per task; it is requeued after a preemption or the loss of a host.
#
#   launch/slurm.sh --nodes=N [--tasks-per-node=K] [--name=NAME] [--restarts=100] [--notice=120] [--dry-run] \
#     [--sbatch=--partition=P …] -- [pretrain|transfer|prune] CONFIG --run_dir=RUN [--a.b=value …]
#   launch/slurm.sh --stop [--name=NAME] [--dry-run]
#
# --sbatch passes an option on to sbatch (partition, time, GPUs); repeat it as needed. RUN must be on a file system that
# every node sees. If a job of the same name is queued or running, nothing is submitted; if it is another run, as its
# comment shows, that is an error. Slurm sends SIGTERM `--notice` seconds before the time limit. The job then saves and
# is requeued, at most `--restarts` times. --stop submits nothing: it makes the job of that name save and end, or
# removes it from the queue.
set -euo pipefail

# Slurm runs a copy of this script from its spool directory; `sbatch` below passes it the folder of the other scripts.
home=$(dirname -- "${BASH_SOURCE[0]}")
[[ ${1:-} != --in-job ]] || home=$2
# shellcheck source=launch/common.sh
. "$home/common.sh"

# srun exits with the highest code of its tasks, so map a task's exit code to numbers that rise in the order of
# `verdict`. On a signal, the shell waits for its command to end.
# shellcheck disable=SC2016
task='trap : TERM INT
trap "" USR1
"$@"
code=$?
case $code in
  0) ;;
  3) exit 93 ;;
  2) exit 96 ;;
  *) if ((code == 4 || code >= 128)); then exit 94; else exit 95; fi ;;
esac'
in_job() { # in_job RESTARTS RUN…
  local most=$1 code=0 done_before=${SLURM_RESTART_COUNT:-0} verdict state stopped=false
  shift
  trap : TERM # Slurm may signal this shell too; the tasks save, and srun returns their code
  trap 'stopped=true' USR1 # sent by --stop; it takes effect when srun has ended
  # The first task to end must not end the others while they save; after three minutes they count as stuck.
  srun --kill-on-bad-exit=0 --wait=180 --label bash -c "$task" task bertzoo "$@" || code=$?
  case $code in 93) code=3 ;; 94) code=4 ;; 95) code=1 ;; 96) code=2 ;; esac
  verdict=$(verdict "$code")
  [[ $verdict == again ]] || exit "$code"
  if "$stopped"; then
    say "the run was stopped; the same submission resumes it"
    exit "$code"
  fi
  # Do not requeue a job that is being cancelled; Slurm itself requeues a job that it preempts.
  state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) || state=RUNNING
  if [[ $state != RUNNING ]]; then
    say "the tasks ended with $code, and job $SLURM_JOB_ID is ${state:-gone}; it is not requeued"
    exit "$code"
  fi
  ((done_before < most)) || fail "the tasks ended with $code again, and the job was already requeued $done_before times"
  say "the tasks ended with $code; requeueing job $SLURM_JOB_ID"
  scontrol requeue "$SLURM_JOB_ID"
  # Slurm ends this shell now; if the shell ends first, the job must not count as done.
  sleep 60 || true
  exit 3
}
if [[ ${1:-} == --in-job ]]; then
  shift 2
  in_job "$@"
fi

nodes="" tasks=1 name=bertzoo restarts=100 notice=120 options=() stop=false
while (($#)); do
  case $1 in
    --nodes=*) nodes=${1#*=} && whole --nodes "$nodes" 1 ;;
    --tasks-per-node=*) tasks=${1#*=} && whole --tasks-per-node "$tasks" 1 ;;
    --name=*) name=${1#*=} && name_like --name "$name" 63 ;;
    --restarts=*) restarts=${1#*=} && whole --restarts "$restarts" 0 ;;
    --notice=*) notice=${1#*=} && whole --notice "$notice" 1 ;;
    --sbatch=--comment*) die "$1: this script stores in the job's comment which run it is; leave the option out" ;;
    --sbatch=-*) options+=("${1#*=}") ;;
    --stop) stop=true ;;
    --dry-run) dry_run=true ;;
    --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    --) shift && break ;;
    *) die "unknown argument $1; put the run after --, and an option of sbatch into --sbatch=--option=value" ;;
  esac
  shift
done
if "$stop"; then
  [[ $# == 0 && -z $nodes && ${#options[@]} == 0 ]] || die "--stop takes no other option than --name, and no run: it submits nothing"
  need squeue "this is for a machine that submits to Slurm"
  jobs="JOB RUNNING"
  "$dry_run" || jobs=$(squeue --me --noheader --name="$name" '--format=%i %T') || fail "squeue did not say what is queued"
  [[ -n $jobs ]] || say "no job of the name $name is queued or running: nothing to stop"
  while read -r job state; do
    case $state in
      "") ;;
      RUNNING)
        # Signal the script first, so that it does not requeue the job when the tasks have saved.
        act scancel --batch --signal=USR1 "$job"
        act scancel --signal=TERM "$job"
        ;;
      *) act scancel "$job" ;;
    esac
  done <<<"$jobs"
  exit
fi
[[ -n $nodes ]] || die "--nodes=N is missing: on how many nodes is the run to be?"
((notice <= 65535)) || die "--notice=$notice is more than Slurm's 65535 seconds"
take_run "$@"
need sbatch "this is for a machine that submits to Slurm"
need bertzoo "install it, or activate the environment that has it: the job inherits the PATH"

# An identifier of the run for the job's comment, which may be too short for all arguments of a run.
mark=bertzoo-$(quoted "${run[@]}" | sha256sum | cut -c1-16)
if ! "$dry_run"; then
  queued=$(squeue --me --noheader --name="$name" '--format=%i %k') || fail "squeue did not say what is queued"
  while read -r job comment; do
    [[ -z $job || $comment == "$mark" ]] ||
      die "job $job of the name $name is another run; give this run another --name, or stop that job: $me --stop --name=$name"
  done <<<"$queued"
  if [[ -n $queued ]]; then
    say "job $(cut -d' ' -f1 <<<"$queued" | paste -sd, -) of the name $name is queued or running already; nothing was submitted"
    exit
  fi
fi
here=$(cd -- "$home" && pwd)
act sbatch --job-name="$name" --comment="$mark" --nodes="$nodes" --ntasks-per-node="$tasks" --requeue --open-mode=append \
  --signal="TERM@$notice" "${options[@]}" "$here/slurm.sh" --in-job "$here" "$restarts" "${run[@]}"
