#!/usr/bin/env bash
# Runs bertzoo on a Cloud TPU that is rented through queued resources, or with --api=compute through the Compute Engine
# API: from the request to the deletion.
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
#   type; an image family with --api=compute), --spot, --reserved or --flex-start=1d (at most 7 days of capacity, when it
#   is free), --poll=30 (seconds). With a run after --, its config is checked before anything is rented.
# watch: --restarts=100. copy and watch: --copy=PATH, which is copied into the workers' checkout (repeat as needed), and
#   --before=COMMAND, which every worker then runs, for example to mount a bucket.
# All actions: --api=compute (v5p, v6e and tpu7x; give it to every action on this TPU), --internal-ip, and --dry-run,
#   which prints the commands and runs none.
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

# Set `runtime`, and `tier` to the flags of gcloud, for a queued resource.
describe_node() {
  if [[ ${tier[*]} == --flex-start ]]; then # flags of gcloud's alpha commands
    tier=(--provisioning-model=flex-start "--max-run-duration=$longest") track=(alpha)
  fi
  [[ -z $runtime ]] || return 0
  case $accelerator in # https://cloud.google.com/tpu/docs/runtimes
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v[234]-*) runtime=tpu-ubuntu2204-base ;;
    *7x*) die "--accelerator=$accelerator: no queued resource has TPU7x; add --api=compute or use launch/gke/job.sh" ;;
    *) die "--accelerator=$accelerator is of no known generation; name its software with --runtime=VERSION" ;;
  esac
}

# Set Compute Engine's variables: `hosts`, the number of hosts, `topology`, the slice's shape if it has several, and
# `template`, the name of a template with the flags `host`.
describe_hosts() {
  local number=${accelerator##*-} machine chips most log
  [[ $number =~ ^[1-9][0-9]{0,3}$ ]] || die "--accelerator=$accelerator does not end in a number of chips or cores"
  case $accelerator in # https://docs.cloud.google.com/compute/docs/tpus
    v6e-*) machine=ct6e-standard chips=$number most=8 ;;
    v5p-*) machine=ct5p-hightpu chips=$((number / 2)) most=4 ;;
    tpu7x-*) machine=tpu7x-standard chips=$((number / 2)) most=4 ;;
    *) die "--accelerator=$accelerator: --api=compute has v5p, v6e and tpu7x; leave it out for older types" ;;
  esac
  for ((log = 0; 1 << log < chips; log++)); do :; done
  ((chips && 1 << log == chips)) || die "--accelerator=$accelerator: --api=compute takes slices of 1, 2, 4, 8 … chips"
  case $machine-$chips in # hosts that Google lists are of 1, 4 and 8 chips of v6e, of 1, 2 and 4 of v5p, and of 4 of TPU7x
    ct6e-standard-2 | tpu7x-standard-[12])
      die "--accelerator=$accelerator: no host has $chips of these chips; take v6e-1, v6e-4, tpu7x-8 or a larger slice"
      ;;
  esac
  hosts=1 # with all chips; those of larger slices have 4
  if ((chips > most)); then
    ((${#project[@]})) || die "--project=PROJECT is missing: it is part of the name of the slice's shape"
    hosts=$((chips / 4)) chips=4
    topology=$((1 << log / 3))x$((1 << (log + 1) / 3))x$((1 << (log + 2) / 3))
    [[ $accelerator != v6e-* ]] || topology=$((1 << log / 2))x$((1 << (log + 1) / 2))
  fi
  if [[ -z $runtime ]]; then
    runtime=ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e
    [[ $accelerator != tpu7x-* ]] || runtime=ubuntu-accel-2404-amd64-tpu-tpu7x
  fi
  host=("--machine-type=$machine-${chips}t" --image-project=ubuntu-os-accelerator-images "--image-family=$runtime"
    "--boot-disk-size=200GB" --maintenance-policy=TERMINATE --scopes=https://www.googleapis.com/auth/cloud-platform)
  case ${tier[*]} in
    --spot) host+=(--provisioning-model=SPOT --instance-termination-action=STOP) ;;
    --flex-start)
      host+=(--provisioning-model=FLEX_START "--max-run-duration=$longest" --instance-termination-action=DELETE
        --reservation-affinity=none)
      ;;
    --reserved) die "--api=compute takes a matching open reservation by itself; leave out --reserved" ;;
  esac
  template=bertzoo-$accelerator-$(cksum <<<"${host[*]}" | cut -d ' ' -f 1)
}

name="" zone="" place=() accelerator="" runtime="" tier=() poll=30 restarts=100 worker=0 yes=false
folder="" ip=() extra=() before="" longest="" track=() api=queued project=() same=()
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} && name_like --name "$name" 40 ;;
    --zone=*) zone=${1#*=} && name_like --zone "$zone" 40 ;;
    --project=?*) project=("$1") ;;
    --api=queued | --api=compute) api=${1#*=} && same=("$1") ;;
    --accelerator=?*) accelerator=${1#*=} ;;
    --runtime=?*) runtime=${1#*=} ;;
    --spot | --reserved) tier+=("$1") ;;
    --flex-start=?*) tier+=(--flex-start) && longest=${1#*=} ;;
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
place=("--zone=$zone" "${project[@]}")
for path in "${extra[@]}"; do [[ -e $path ]] || die "--copy=$path does not exist"; done
if [[ $action == run || $action == watch ]] || ((${#run[@]})); then take_run "${run[@]}"; fi
if [[ $action == create || $action == watch || $action == smoke ]]; then
  [[ -n $accelerator ]] || die "--accelerator=TYPE is missing: v5litepod-16, v6e-256 or another type of the zone"
  if [[ $api == compute ]]; then describe_hosts; else describe_node; fi
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
thing="queued resource"
show="value(state.state)"
if [[ $api == compute ]]; then
  resources=(gcloud compute instance-groups managed)
  vm=(gcloud compute)
  thing="instance group"
  show="value(targetSize,status.isStable)"
fi
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# Set `state` to that of the queued resource, or to ABSENT if there is none. A dry run assumes that each step succeeds.
state=ABSENT
ask() {
  local lines
  local describe=("${resources[@]}" describe "$name" "${place[@]}" "--format=$show")
  local list=("${resources[@]}" list-instances "$name" "${place[@]}"
    "--format=csv[no-heading](instance.basename(),instanceStatus,currentAction)")
  if "$dry_run"; then
    act "${describe[@]}"
    if [[ $api == compute ]]; then act "${list[@]}" && members=(HOST); fi
    return
  fi
  if state=$("${describe[@]}" 2>"$scratch/error") && { [[ $api == queued ]] || lines=$("${list[@]}" 2>"$scratch/error"); }; then
    [[ -n $state ]] || fail "gcloud gave no state of the $thing $name"
    [[ $api == queued ]] || read_group "$state" "$lines"
  elif grep -q -e NOT_FOUND -e "was not found" "$scratch/error"; then
    state=ABSENT
  else
    cat -- "$scratch/error" >&2
    fail "the state of the $thing $name cannot be read"
  fi
}

# Set `members` to the hosts of an instance group, and `state` to that of a queued resource in its place: PROVISIONING
# also while hosts restart, SUSPENDED if some are gone and nothing changes any more.
members=()
read_group() { # read_group "SIZE STABLE" LINES
  local size stable member status change up=0
  read -r size stable <<<"$1"
  members=() state=SUSPENDED
  [[ $stable == True ]] || state=PROVISIONING
  while IFS=, read -r member status change; do
    [[ -n $member ]] || continue
    members+=("$member")
    case $status,$change in
      *,DELETING) state=DELETING ;;
      RUNNING,NONE | RUNNING,VERIFYING) ((++up)) ;;
      ,NONE | TERMINATED,NONE | STOPPED,NONE | SUSPENDED,NONE) ;;
      *) [[ $state == DELETING ]] || state=PROVISIONING ;;
    esac
  done <<<"$2"
  if [[ $state != DELETING ]] && ((up && up == size)); then state=ACTIVE; fi
}

# Create a free resource (template, shape) if no resource has its name.
provide() {
  printf '+ %s\n' "$(quoted "$@")"
  if "$dry_run" || "$@" 2>"$scratch/error" || grep -q "already exists" "$scratch/error"; then return; fi
  cat -- "$scratch/error" >&2
  return 1
}

rent() {
  local region=${zone%-*} policy=()
  if [[ $api == queued ]]; then
    act gcloud "${track[@]}" "${resources[@]:1}" create "$name" --node-id="$name" "${place[@]}" \
      --accelerator-type="$accelerator" --runtime-version="$runtime" "${tier[@]}"
    return
  fi
  if ((hosts > 1)); then
    provide gcloud compute resource-policies create workload-policy "bertzoo-$topology" --region="$region" \
      "${project[@]}" --type=HIGH_THROUGHPUT --accelerator-topology="$topology" --accelerator-topology-mode=AUTO_CONNECT
    policy=("--workload-policy=projects/${project[0]#*=}/regions/$region/resourcePolicies/bertzoo-$topology")
  fi
  provide gcloud compute instance-templates create "$template" "${project[@]}" "${host[@]}"
  act "${resources[@]}" create "$name" "${place[@]}" --size="$hosts" --template="$template" \
    "${policy[@]}" --target-size-policy-mode=bulk --default-action-on-vm-failure=do-nothing
}

give_back() { # give_back [--quiet]
  local force=(--force)
  [[ $api == queued ]] || force=()
  act "${resources[@]}" delete "$name" "${place[@]}" "${force[@]}" "$@"
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
        rent
        may_lack=false
        if "$dry_run"; then state=ACTIVE && return; fi
        ;;
      FAILED | SUSPENDED) # a preempted TPU ends in these states, and keeps its name until it is deleted
        give_back --quiet
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

# Call a function with `target` and `workers` set for each connection: one reaches all workers of a TPU VM; of an
# instance group, each host has its own, and all are made at once. Return the first code that is not 0.
every() { # every WORKERS FUNCTION ARGUMENT…
  local target=$name workers=(--worker="$1") pids=() pid codes=()
  shift
  if [[ $api == compute ]]; then
    workers=()
    ((${#members[@]})) || ask
    ((${#members[@]})) || fail "$name is $state"
    target=${members[0]}
  fi
  if ((${#members[@]} < 2)); then
    "$@"
    return
  fi
  trap 'kill -- "${pids[@]/#/-}" 2>/dev/null; exit 130' INT TERM
  for target in "${members[@]}"; do
    set -m # each in a process group, which the trap ends whole; a background process ignores an interrupt
    "$@" </dev/null &
    set +m
    pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid" || codes+=("$?"); done
  trap - INT TERM
  return "${codes[0]:-0}"
}
run_there() { act "${vm[@]}" ssh "$target" "${place[@]}" "${ip[@]}" "${workers[@]}" --command="$1"; }
put() { act "${vm[@]}" scp --recurse "${@:2}" "$target:$1" "${place[@]}" "${ip[@]}" "${workers[@]}"; } # put DESTINATION PATH…
fetch() { act "${vm[@]}" scp --recurse "$target:$1" "$2" "${place[@]}" "${ip[@]}" "${workers[@]}"; }
on() { every "$1" run_there "$2"; } # on WORKERS COMMAND: run a command line there

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
  every all put "" "$scratch/bertzoo.tar.gz" &&
    on all "mkdir -p bertzoo && tar -xzf bertzoo.tar.gz --recursive-unlink -C bertzoo" &&
    { ((${#extra[@]} == 0)) || every all put bertzoo/ "${extra[@]}"; } &&
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
  answer=$(on all "\
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
  say "the TPU is still rented; to end that: $me delete --name=$name $(quoted "${place[@]}" "${same[@]}")"
  exit "$outcome"
}

smoke() {
  ask
  [[ $state == ABSENT ]] || die "$name is $state already; smoke deletes its TPU, so give it a --name of its own"
  local code=0
  # Whatever fails, or stops this script, the TPU is deleted.
  trap 'give_back --quiet; rm -rf -- "$scratch"' EXIT
  request
  copy
  on 0 "PATH=\$HOME/bertzoo-venv/bin:\$PATH bash bertzoo/launch/smoke.sh smoke" || code=$?
  act mkdir -p -- "$(dirname -- "$folder")"
  every 0 fetch smoke "$folder"
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
  tail)
    if [[ $api == queued ]]; then
      on "$worker" "bash bertzoo/launch/tpu_worker.sh tail"
    else # the hosts know their numbers
      on all "bash bertzoo/launch/tpu_worker.sh tail $worker"
    fi
    ;;
  stop) # write the mark first, so that a `watch` that is about to start the run sees it too
    on all "mkdir -p bertzoo-run && touch bertzoo-run/stopped && \
{ [ ! -e bertzoo/launch/tpu_worker.sh ] || bash bertzoo/launch/tpu_worker.sh stop; }"
    ;;
  delete)
    ask
    if [[ $state == ABSENT ]] && ! "$dry_run"; then
      say "there is no $thing $name in $zone: nothing to delete"
      exit
    fi
    say "deleting the $thing $name in $zone, its TPU VMs and all that is on their disks"
    sure=()
    if "$yes"; then sure=(--quiet); elif ! [[ -t 0 ]] && ! "$dry_run"; then die "there is no terminal for a confirmation; add --yes"; fi
    give_back "${sure[@]}"
    ;;
esac
