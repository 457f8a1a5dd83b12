#!/usr/bin/env bash
# Runs bertzoo on TPU slices of a GKE cluster, as a JobSet that restarts after a preemption.
#
#   launch/gke/job.sh ACTION --name=NAME [options] [-- [pretrain|transfer|prune] CONFIG --run_dir=PATH [--a.b=value …]]
#
#   apply    start the run, unless it is running or done; restart a failed run with the arguments given now
#   show     print the manifest that apply would use
#   status   show the JobSet and its pods
#   logs     follow the log of the first host of the first slice
#   delete   stop the run (its pods save first) and remove it; the files that it has written stay
#   smoke    run launch/smoke.sh on a slice of one host, copy its FOLDER to the bucket and to --folder=runs/NAME, and
#            remove the JobSet
#
# apply, show and smoke: --tpu=v4|v5e|v5p|v6e|tpu7x, --topology=4x4 (2x2x1 …, of one slice), --image=IMAGE, --slices=1,
#   --spot, --flex-start or --reservation=NAME (nodes of that kind), --queue=NAME (Kueue's local queue; admits the run
#   whole) with --priority=CLASS (Kueue's WorkloadPriorityClass), --restarts=100, --grace=120 (seconds for saving), --chips-per-host=N (if the machine type has an unusual number),
#   --bucket=BUCKET (a Cloud Storage bucket, mounted at /bucket), --service-account=default.
# All actions: --context=CONTEXT and --namespace=NAMESPACE of kubectl, and --dry-run, which prints the commands and runs none.
# PATH must be visible to every host. docs/howto/gke.md shows every step, and how to create the node pools.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
template=$(dirname -- "${BASH_SOURCE[0]}")/jobset.yaml

[[ ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit; }
action=${1:-}
case $action in
  apply | show | status | logs | delete | smoke) shift ;;
  *) die "unknown action ${action:-(none)}; the actions are apply, show, status, logs, delete and smoke" ;;
esac
name="" tpu="" topology="" image="" slices=1 tier=() queue="" priority="" restarts=100 grace=120 chips="" bucket="" folder="" account=default
where=()
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} && name_like --name "$name" 40 ;;
    --tpu=?*) tpu=${1#*=} ;;
    --topology=?*) topology=${1#*=} ;;
    --image=?*) image=${1#*=} ;;
    --slices=*) slices=${1#*=} && whole --slices "$slices" 1 ;;
    --spot | --flex-start) tier+=("cloud.google.com/gke-${1#--}" '"true"') ;;
    --reservation=*) name_like --reservation "${1#*=}" 63 && tier+=(cloud.google.com/reservation-name "${1#*=}") ;;
    --queue=*) queue=${1#*=} && name_like --queue "$queue" 63 ;;
    --priority=*) priority=${1#*=} && name_like --priority "$priority" 63 ;;
    --restarts=*) restarts=${1#*=} && whole --restarts "$restarts" 0 ;;
    --grace=*) grace=${1#*=} && whole --grace "$grace" 1 ;;
    --chips-per-host=*) chips=${1#*=} && whole --chips-per-host "$chips" 1 ;;
    --bucket=?*) bucket=${1#*=} ;;
    --folder=?*) folder=${1#*=} ;;
    --service-account=?*) account=${1#*=} ;;
    --context=?* | --namespace=?*) where+=("$1") ;;
    --dry-run) dry_run=true ;;
    --) shift && run=("$@") && break ;;
    *) die "unknown argument $1; \`$me --help\` lists the options, and the run comes after --" ;;
  esac
  shift
done
[[ -n $name ]] || die "--name=NAME is missing: what is the run called?"
((${#tier[@]} <= 2)) || die "--spot, --flex-start and --reservation exclude one another; use one of them"
[[ -z $priority || -n $queue ]] || die "--priority=$priority is a class of Kueue, which needs --queue=NAME"
kubectl=(kubectl "${where[@]}")

# Print a JSON string, which is a YAML string too; it rejects all control characters but newline and tab.
json() {
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\t'/\\t}
  [[ $text != *[[:cntrl:]]* ]] || die "a control character is in $(quoted "$1")"
  printf '"%s"' "$text"
}
json_list() {
  local list="" word
  # Kubernetes replaces $(NAME) in arguments, and $$ by $.
  for word in "$@"; do list+="${list:+, }$(json "${word//\$/\$\$}")" || exit; done
  printf '[%s]' "$list"
}

cubes() { # cubes TOPOLOGY LARGEST: is it a slice of whole cubes of 4x4x4 chips?
  [[ $1 =~ ^([1-9][0-9]{0,3})x([1-9][0-9]{0,3})x([1-9][0-9]{0,3})$ ]] || return 1
  local a=${BASH_REMATCH[1]} b=${BASH_REMATCH[2]} c=${BASH_REMATCH[3]}
  ((a % 4 == 0 && b % 4 == 0 && c % 4 == 0 && a <= b && b <= c && a * b * c <= $2))
}

# Labels: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
describe_slice() { # sets accelerator, chips and hosts
  local known usual=4 all=1 size flat="1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16" solid="2x2x1, 2x2x2, 2x2x4, 2x4x4" largest=0
  case $tpu in # slices as in bertzoo/planning/chips.py; those made of cubes have at most `largest` chips
    v4) accelerator=tpu-v4-podslice known=$solid largest=4096 ;;
    v5e) accelerator=tpu-v5-lite-podslice known=$flat ;;
    v5p) accelerator=tpu-v5p-slice known=$solid largest=6144 ;;
    v6e) accelerator=tpu-v6e-slice known=$flat ;;
    tpu7x) accelerator=tpu7x known="1x1x1, $solid" largest=9216 ;;
    "") die "--tpu is missing: v4, v5e, v5p, v6e or tpu7x" ;;
    *) die "--tpu=$tpu is none of v4, v5e, v5p, v6e and tpu7x" ;;
  esac
  [[ -n $topology ]] || die "--topology is missing: the chips of one slice, such as $( ((largest)) && echo 2x2x2 || echo 4x4)"
  if [[ ", $known, " != *", $topology, "* ]] && ! cubes "$topology" "$largest"; then
    if ((largest)); then
      known+=" and every AxBxC of multiples of 4 in rising order with at most $largest chips, such as 4x4x4, 4x4x8 and 8x8x8"
    fi
    die "--topology=$topology does not exist: the slices of $tpu are $known"
  fi
  for size in ${topology//x/ }; do all=$((all * size)); done
  if ((all < usual)); then usual=$all; fi
  : "${chips:=$usual}"
  ((chips <= all && all % chips == 0)) || die "--topology=$topology has $all chips, which --chips-per-host=$chips does not divide"
  hosts=$((all / chips))
  # https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice
  ((slices == 1 || hosts > 1)) || die "--slices=$slices needs slices of several hosts, and --topology=$topology is one host"
}

manifest() {
  local nodes mounts volumes annotations labels text
  nodes="{cloud.google.com/gke-tpu-accelerator: $accelerator, cloud.google.com/gke-tpu-topology: $topology"
  nodes+="${tier:+, ${tier[0]}: ${tier[1]}}}"
  labels="${queue:+kueue.x-k8s.io/queue-name: $queue}${priority:+, kueue.x-k8s.io/priority-class: $priority}"
  # Processes that prepare batches pass them on through shared memory.
  mounts="{name: shared-memory, mountPath: /dev/shm}"
  volumes="{name: shared-memory, emptyDir: {medium: Memory}}"
  annotations="{}"
  if [[ -n $bucket ]]; then
    annotations='{gke-gcsfuse/volumes: "true"}'
    mounts+=", {name: bucket, mountPath: /bucket}"
    volumes+=", {name: bucket, csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: $(json "$bucket")}}}"
  fi
  text=$(<"$template")
  fill() { text=${text//"@$1@"/"$2"}; }
  fill NAME "$name"
  fill LABELS "{$labels}"
  fill RESTARTS "$restarts"
  fill SLICES "$slices"
  fill HOSTS "$hosts"
  fill CHIPS "$chips"
  fill GRACE "$grace"
  fill NODES "$nodes"
  fill SERVICE_ACCOUNT "$(json "$account")"
  fill POD_ANNOTATIONS "$annotations"
  fill MOUNTS "[$mounts]"
  fill VOLUMES "[$volumes]"
  fill COMMAND "[$command]"
  fill IMAGE "$(json "$image")"
  fill WORDS "$(json "$words" | sed 's/@/\\u0040/g')" # so that nothing in it is replaced
  fill RUN "$arguments" # last, so that nothing in it is replaced
  printf '%s\n' "$text"
}

if [[ $action == apply || $action == show ]]; then
  take_run "${run[@]}"
  describe_slice
  [[ -n $image ]] || die "--image=IMAGE is missing: launch/gke/Dockerfile makes one"
  arguments=$(json_list "${run[@]:1}")
  words=$(quoted "${run[@]}") command="bertzoo, ${run[0]}"
fi
if [[ $action == smoke ]]; then
  describe_slice
  ((${#run[@]} == 0)) || die "smoke has runs of its own; leave out what follows --"
  ((hosts == 1)) || die "--topology=$topology has $hosts hosts; smoke takes a slice of one, such as 2x2"
  [[ -n $image ]] || die "--image=IMAGE is missing: launch/gke/Dockerfile makes one"
  [[ -n $bucket ]] || die "--bucket=BUCKET is missing: the results go through it"
  folder=${folder:-runs/$name}
  [[ ! -e $folder ]] || die "--folder=$folder exists already; name a new one"
  words=smoke command=bash
  arguments=$(json_list -c "launch/smoke.sh smoke; code=\$?; mkdir -p /bucket/$name && cp -r smoke/. /bucket/$name && exit \$code")
fi
if [[ $action == show ]]; then
  manifest
  exit
fi
need kubectl "install it and connect it to the cluster: gcloud container clusters get-credentials"

# Set `state` to ABSENT, RUNNING, Completed or Failed, and `there` to the arguments of the JobSet's run.
state=ABSENT there=""
ask() {
  local answer
  answer=$("${kubectl[@]}" get jobsets --field-selector="metadata.name=$name" \
    -o 'jsonpath={range .items[*]}{.metadata.name}={.status.terminalState}={.metadata.annotations.bertzoo/run}{end}') ||
    fail "kubectl cannot list the JobSets; the cluster must be reachable and have JobSet installed: https://jobset.sigs.k8s.io/docs/installation"
  [[ -n $answer ]] || { state=ABSENT && return; }
  answer=${answer#"$name="}
  state=${answer%%=*} there=${answer#*=}
  : "${state:=RUNNING}"
}
send() {
  if "$dry_run"; then
    manifest
    act "${kubectl[@]}" apply -f -
  else
    manifest | act "${kubectl[@]}" apply -f -
  fi
}
remove() { act "${kubectl[@]}" delete jobset "$name" --ignore-not-found --wait; }

case $action in
  smoke)
    need gcloud "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install"
    "$dry_run" || ask
    [[ $state == ABSENT ]] || die "there is a JobSet $name already; give the smoke test a --name of its own"
    trap remove EXIT # whatever fails
    send
    act "${kubectl[@]}" wait --for='jsonpath={.status.terminalState}' --timeout=2h "jobset/$name"
    act mkdir -p -- "$folder"
    act gcloud storage cp --recursive "gs://$bucket/$name/*" "$folder"
    say "the results are in $folder; paste $folder/smoke.txt into the issue form \"TPU smoke test\""
    "$dry_run" || ask
    "$dry_run" || [[ $state == Completed ]] || fail "the smoke test failed"
    ;;
  apply)
    if ! "$dry_run"; then
      ask
      # A run may have failed because of its arguments, so a failed run may be replaced by one with other arguments.
      if [[ $state != ABSENT && $state != Failed && $there != "$words" ]]; then
        die "$name is another run (bertzoo $there), $([[ $state == Completed ]] && echo "which is done" || echo "which is still running"); give this run another --name, or delete that run first"
      fi
      case $state in
        ABSENT) ;;
        Failed) say "$name has failed; restarting it" && remove ;;
        Completed) say "$name is done; to run it once more: $me delete first" && exit ;;
        *) say "$name is still running; it was left alone" && exit ;;
      esac
    fi
    send
    ;;
  status)
    act "${kubectl[@]}" get jobsets --field-selector="metadata.name=$name"
    act "${kubectl[@]}" get pods --selector="jobset.sigs.k8s.io/jobset-name=$name"
    ;;
  logs)
    act "${kubectl[@]}" logs --follow --tail=100 --container=bertzoo \
      --selector="jobset.sigs.k8s.io/jobset-name=$name,jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0"
    ;;
  delete) remove ;;
esac
