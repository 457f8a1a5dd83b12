#!/usr/bin/env bash
# Runs bertzoo on a Cloud TPU that is rented through queued resources: from the request to the deletion.
#
#   launch/tpu_vm.sh ACTION --name=NAME --zone=ZONE [--project=PROJECT] [options] \
#     [-- [pretrain|transfer|prune] CONFIG --run_dir=PATH [--a.b=value …]]
#
#   create   request the TPU, or a new one if it was preempted, and wait until it is ready
#   copy     copy this checkout (tracked files in their current state) to every worker and install it
#   run      start the run on every worker; it continues when the connection ends
#   watch    create, copy, run and wait; repeat after a preemption, exit code 3 (stopped) or 4 (lost host). Exits with
#            the run's code, with 3 if `stop` has stopped it, and with 1 if `delete` has deleted the TPU
#   status   the state of the TPU and of the run on each worker
#   tail     follow the log of one worker (--worker=0)
#   stop     make every worker save and end; a `watch` on another machine then ends too
#   delete   delete the TPU with its disks, after a confirmation (--yes: without)
#   smoke    rent a TPU of one host, run launch/smoke.sh there, copy its FOLDER to --folder=runs/NAME, delete the TPU
#
# create, watch and smoke: --accelerator=TYPE (v5litepod-16, v6e-256, v4-128 …), --runtime=VERSION (default: that of the
#   type), --spot, --reserved or --flex-start=1d (at most 7 days of capacity, when it is free), --poll=30 (seconds). With
#   a run after --, its config is checked before anything is rented.
# watch: --restarts=100. copy and watch: --copy=PATH, which is copied into the workers' checkout (repeat as needed), and
#   --before=COMMAND, which every worker then runs, for example to mount a bucket.
# All actions: --internal-ip, and --dry-run, which prints the commands and runs none.
# The PATH of --run_dir must be visible to every worker and outlive the TPU. docs/howto/tpu_vms.md shows every step.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

[[ ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit; }
action=${1:-}
case $action in
  create | copy | run | watch | status | tail | stop | delete | smoke) shift ;;
  *) die "unknown action ${action:-(none)}; the actions are create, copy, run, watch, status, tail, stop, delete and smoke" ;;
esac
# Check the run's config with this machine's bertzoo. It reads the files that the workers will read, from the checkout
# and from --copy. Files elsewhere on the workers cannot be checked here.
check_config() {
  local words=("${run[@]}") i path error
  for ((i = 1; i < ${#words[@]}; i++)); do
    [[ ${words[i]} != -* ]] || break
    for path in "${extra[@]}"; do
      if [[ ${words[i]} == "$(basename -- "$path")" ]]; then words[i]=$(realpath -- "$path"); fi
    done
    if [[ ${words[i]} == ../* && ! -e $root/${words[i]} ]]; then
      say "${words[i]} is not on this machine: the config was not checked"
      return
    fi
  done
  printf '+ %s\n' "$(quoted bertzoo config "${words[@]}")"
  if "$dry_run"; then return; fi
  if ! command -v bertzoo >/dev/null; then
    say "bertzoo is not installed on this machine: the config was not checked"
    return
  fi
  error=$(cd -- "$root" && bertzoo config "${words[@]}" 2>&1 >/dev/null) || die "nothing was rented, because the config is not valid: ${error#bertzoo: }"
}

name="" zone="" place=() accelerator="" runtime="" tier=() poll=30 restarts=100 worker=0 yes=false
folder="" ip=() extra=() before="" flex=() track=()
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} && name_like --name "$name" 40 ;;
    --zone=*) zone=${1#*=} && name_like --zone "$zone" 40 ;;
    --project=?*) place+=("--project=${1#*=}") ;;
    --accelerator=?*) accelerator=${1#*=} ;;
    --runtime=?*) runtime=${1#*=} ;;
    --spot | --reserved) tier+=("$1") ;;
    --flex-start=?*) tier+=(--flex-start) && flex=(--provisioning-model=flex-start "--max-run-duration=${1#*=}") ;;
    --poll=*) poll=${1#*=} && whole --poll "$poll" 0 ;;
    --restarts=*) restarts=${1#*=} && whole --restarts "$restarts" 0 ;;
    --worker=*) worker=${1#*=} && whole --worker "$worker" 0 ;;
    --internal-ip) ip=(--internal-ip) ;;
    --copy=?*) extra+=("${1#*=}") ;;
    --before=?*) before=${1#*=} ;;
    --yes) yes=true ;;
    --folder=?*) folder=${1#*=} ;;
    --dry-run) dry_run=true ;;
    --) shift && run=("$@") && break ;;
    *) die "unknown argument $1; \`$me --help\` lists the options, and the run comes after --" ;;
  esac
  shift
done
[[ -n $name ]] || die "--name=NAME is missing: what is the TPU called?"
[[ -n $zone ]] || die "--zone=ZONE is missing: where is the TPU?"
((${#tier[@]} < 2)) || die "${tier[0]} and ${tier[1]} exclude each other; use one of them"
if ((${#flex[@]})); then tier=("${flex[@]}") track=(alpha); fi # flags of gcloud's alpha commands
place=("--zone=$zone" "${place[@]}")
for path in "${extra[@]}"; do [[ -e $path ]] || die "--copy=$path does not exist"; done
if [[ $action == run || $action == watch ]] || ((${#run[@]})); then take_run "${run[@]}"; fi
if [[ $action == create || $action == watch || $action == smoke ]]; then
  [[ -n $accelerator ]] || die "--accelerator=TYPE is missing: v5litepod-16, v6e-256 or another type of the zone"
  if [[ -z $runtime ]]; then
    case $accelerator in # https://cloud.google.com/tpu/docs/runtimes
      v6e-*) runtime=v2-alpha-tpuv6e ;;
      v5p-*) runtime=v2-alpha-tpuv5 ;;
      v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
      v[234]-*) runtime=tpu-ubuntu2204-base ;;
      *7x*) die "--accelerator=$accelerator: TPU7x is rented through GKE alone; use launch/gke/job.sh" ;;
      *) die "--accelerator=$accelerator is of no known generation; name its software with --runtime=VERSION" ;;
    esac
  fi
fi
if [[ $action == smoke ]]; then
  ((${#run[@]} == 0)) || die "smoke has runs of its own; leave out what follows --"
  # The hosts of a larger slice need a folder that all of them see.
  [[ ${accelerator##*-} =~ ^[1-8]$ ]] || die "--accelerator=$accelerator: smoke takes types of one host, such as v5litepod-8, v6e-8 and v4-8"
  folder=${folder:-runs/$name}
  [[ ! -e $folder ]] || die "--folder=$folder exists already; name a new one"
fi
if [[ $action == create || $action == watch ]] && ((${#run[@]})); then check_config; fi
need gcloud "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install"

resources=(gcloud compute tpus queued-resources)
vm=(gcloud compute tpus tpu-vm)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# Set `state` to that of the queued resource, or to ABSENT if there is none. A dry run assumes that each step succeeds.
state=ABSENT
ask() {
  if "$dry_run"; then
    act "${resources[@]}" describe "$name" "${place[@]}" "--format=value(state.state)"
  elif state=$("${resources[@]}" describe "$name" "${place[@]}" "--format=value(state.state)" 2>"$scratch/error"); then
    [[ -n $state ]] || fail "gcloud gave no state of the queued resource $name"
  elif grep -q NOT_FOUND "$scratch/error"; then
    state=ABSENT
  else
    cat -- "$scratch/error" >&2
    fail "the state of the queued resource $name cannot be read"
  fi
}

# Whether the TPU may be missing: before this script has seen it, and after this script has deleted it. Otherwise
# somebody else has deleted it, and no other one must be rented.
may_lack=true
deleted() { fail "$name was deleted meanwhile, and is not requested again; the run's files are in its --run_dir"; }

request() { # request the TPU and wait until it is ready
  local last=""
  while :; do
    ask
    [[ $state == "$last" ]] || say "$name is $state"
    last=$state
    case $state in
      ACTIVE) may_lack=false && return ;;
      ABSENT)
        "$may_lack" || deleted
        act gcloud "${track[@]}" "${resources[@]:1}" create "$name" --node-id="$name" "${place[@]}" \
          --accelerator-type="$accelerator" --runtime-version="$runtime" "${tier[@]}"
        may_lack=false
        if "$dry_run"; then state=ACTIVE && return; fi
        ;;
      FAILED | SUSPENDED) # a preempted TPU ends in these states, and keeps its name until it is deleted
        act "${resources[@]}" delete "$name" "${place[@]}" --force --quiet
        may_lack=true
        ;;
      DELETING) # if this script has not seen it active, wait until it is gone and request it again
        "$may_lack" || deleted
        sleep "$poll"
        ;;
      CREATING | ACCEPTED | WAITING_FOR_RESOURCES | PROVISIONING | SUSPENDING)
        may_lack=false
        sleep "$poll"
        ;;
      *) fail "$name is in the state $state, which this script does not know" ;;
    esac
  done
}

on() { # on WORKERS COMMAND: run a command line there
  act "${vm[@]}" ssh "$name" "${place[@]}" "${ip[@]}" --worker="$1" --command="$2"
}
send() { # send WORKERS DESTINATION PATH…
  local workers=$1 there=$2
  shift 2
  act "${vm[@]}" scp --recurse "$@" "$name:$there" "${place[@]}" "${ip[@]}" --worker="$workers"
}

copy() {
  # Make a commit of all tracked files and their uncommitted changes; it is on no branch, and the checkout does not
  # change.
  local tree="" snapshot=(git -C "$root" -c user.name=copy -c user.email=copy@localhost stash create)
  printf '+ %s\n' "$(quoted "${snapshot[@]}")"
  if "$dry_run"; then
    tree=COMMIT
    say "COMMIT is the output of that command, or HEAD if nothing was changed since"
  else
    tree=$("${snapshot[@]}") || fail "git cannot read $root: is it a git checkout?"
  fi
  act git -C "$root" archive --format=tar.gz --output="$scratch/bertzoo.tar.gz" "${tree:-HEAD}" || return
  # One chain of commands, so that `watch` can handle a failure: the TPU may have been preempted meanwhile.
  send all "" "$scratch/bertzoo.tar.gz" &&
    on all "mkdir -p bertzoo && tar -xzf bertzoo.tar.gz --recursive-unlink -C bertzoo" &&
    { ((${#extra[@]} == 0)) || send all bertzoo/ "${extra[@]}"; } &&
    { [[ -z $before ]] || on all "$before"; } &&
    on all "bash bertzoo/launch/tpu_worker.sh install"
}

start() { on all "bash bertzoo/launch/tpu_worker.sh start $(quoted "${run[@]}")"; }
# After `stop`, a user's command may start the run again; the restarts of `watch` may not.
allow() { on all "bash bertzoo/launch/tpu_worker.sh allow"; }

# Set `codes` to each worker's state of this run: running, stopped, idle, an exit code, or another run that is running.
# Fails if a worker does not answer.
codes=()
look() {
  local answer
  # Before the first copy, the workers do not have tpu_worker.sh.
  answer=$("${vm[@]}" ssh "$name" "${place[@]}" "${ip[@]}" --worker=all --command="\
if [ -e bertzoo/launch/tpu_worker.sh ]; then bash bertzoo/launch/tpu_worker.sh status $(quoted "${run[@]}"); else echo bertzoo-worker: idle; fi" 2>"$scratch/error") ||
    return 1
  mapfile -t codes < <(sed -n 's/^bertzoo-worker: \(exit \)\{0,1\}//p' <<<"$answer")
  ((${#codes[@]})) || return 1
  local code
  for code in "${codes[@]}"; do
    [[ $code != another* ]] || die "another run is still running on $name: bertzoo ${code#another }; stop it first, or rent a TPU of another --name"
  done
}
count() { printf '%s\n' "${codes[@]}" | grep -c -x "$1" || true; }

# Wait until no worker runs, and set `outcome` to their verdict, to `stopped` after a user's `stop`, or to `again` if
# the TPU itself is gone.
follow() {
  local misses=0 mixed=0
  while :; do
    ask
    case $state in
      ACTIVE) ;;
      ABSENT | DELETING) deleted ;;
      *) outcome=again && return ;;
    esac
    if look; then
      misses=0
      if (($(count running) == 0)); then
        if (($(count idle))); then outcome=again; else outcome=$(verdict "${codes[@]/#stopped/3}"); fi
        if [[ $outcome == again ]] && (($(count stopped))); then outcome=stopped; fi
        return
      fi
      # If one has ended, the others end within a minute; those that do not are stuck.
      if (($(count running) == ${#codes[@]})); then
        mixed=0
      elif ((++mixed * (poll + 1) > 300)); then
        say "some workers have ended and others have not; stopping the others"
        on all "bash bertzoo/launch/tpu_worker.sh stop" || true
      fi
    elif ((++misses > 10)); then
      cat -- "$scratch/error" >&2
      fail "the workers of $name do not answer, though it is ACTIVE"
    fi
    sleep "$poll"
  done
}

watch() {
  local restarted=0 code
  while :; do
    request
    if "$dry_run" || ! look || (($(count running) == 0)); then
      code=0
      if ((restarted == 0 && ${#codes[@]} > $(count idle))); then allow || code=$?; fi
      ((code)) || { copy && start; } || code=$?
      if ((code)); then
        ask
        [[ $state != ACTIVE ]] || fail "a step failed with exit code $code, and $name is still there"
      fi
    else
      say "the run is already running on $(count running) of ${#codes[@]} workers"
    fi
    if "$dry_run"; then
      say "then: ask every $poll seconds how the workers are; when all have ended with 0, be done; after a preemption, 3 or 4," \
        "restart, at most $restarts times; otherwise exit with the worker's code"
      return
    fi
    follow
    if [[ $outcome == stopped ]]; then
      say "the run was stopped by \`stop\`; the same command resumes it"
      outcome=3
    fi
    if [[ $outcome != again ]]; then break; fi
    ((restarted++ < restarts)) || fail "the run was restarted $restarts times and still does not end"
    say "the run was stopped or lost a host; restarting ($restarted of at most $restarts)"
  done
  if ((outcome == 0)); then
    say "the run is done"
  elif ((outcome != 3)); then
    say "the run failed with exit code $outcome; $me tail … shows why"
  fi
  say "the TPU is still rented; to end that: $me delete --name=$name $(quoted "${place[@]}")"
  exit "$outcome"
}

smoke() {
  ask
  [[ $state == ABSENT ]] || die "$name is $state already; smoke deletes its TPU, so give it a --name of its own"
  local code=0
  # Whatever fails, or stops this script, the TPU is deleted.
  trap 'act "${resources[@]}" delete "$name" "${place[@]}" --force --quiet; rm -rf -- "$scratch"' EXIT
  request
  copy
  on 0 "PATH=\$HOME/bertzoo-venv/bin:\$PATH bash bertzoo/launch/smoke.sh smoke" || code=$?
  act mkdir -p -- "$(dirname -- "$folder")"
  act "${vm[@]}" scp --recurse "$name:smoke" "$folder" "${place[@]}" "${ip[@]}" --worker=0
  say "the results are in $folder; paste $folder/smoke.txt into the issue form \"TPU smoke test\""
  exit "$code"
}

case $action in
  smoke) smoke ;;
  create) request ;;
  copy) copy ;;
  run) allow && start ;;
  watch) watch ;;
  status)
    ask
    "$dry_run" || say "$name is $state"
    if [[ $state == ACTIVE ]] || "$dry_run"; then on all "bash bertzoo/launch/tpu_worker.sh status"; fi
    ;;
  tail) on "$worker" "bash bertzoo/launch/tpu_worker.sh tail" ;;
  stop) # write the mark first, so that a `watch` that is about to start the run sees it too
    on all "mkdir -p bertzoo-run && touch bertzoo-run/stopped && \
{ [ ! -e bertzoo/launch/tpu_worker.sh ] || bash bertzoo/launch/tpu_worker.sh stop; }"
    ;;
  delete)
    ask
    if [[ $state == ABSENT ]] && ! "$dry_run"; then
      say "there is no queued resource $name in $zone: nothing to delete"
      exit
    fi
    say "deleting the queued resource $name in $zone, its TPU VM and all that is on their disks"
    sure=()
    if "$yes"; then sure=(--quiet); elif ! [[ -t 0 ]] && ! "$dry_run"; then die "there is no terminal for a confirmation; add --yes"; fi
    act "${resources[@]}" delete "$name" "${place[@]}" --force "${sure[@]}"
    ;;
esac
