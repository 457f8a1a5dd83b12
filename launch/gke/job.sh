#!/usr/bin/env bash
# A run of `bertzoo pretrain` on TPU slices of a GKE cluster, as a JobSet that is begun again when it was preempted.
#
#   launch/gke/job.sh ACTION --name=NAME [options] [-- CONFIG --run_dir=PATH [--a.b=value …]]
#
#   apply    start the run, or leave it alone where it is going on or done; begin a failed one again
#   show     print the manifest that apply would use
#   status   the JobSet and its pods
#   logs     follow the first host of the first slice
#   delete   stop the run (its pods save first) and remove it; what it has written stays
#
# apply and show: --tpu=v4|v5e|v5p|v6e|tpu7x, --topology=4x4 (2x2x1 …, of one slice), --image=IMAGE, --slices=1, --spot,
#   --restarts=100, --grace=120 (seconds to save in), --chips-per-host=N (where the machine type has not the usual number),
#   --bucket=BUCKET (a Cloud Storage bucket, mounted at /bucket), --service-account=default.
# Everywhere: --context=CONTEXT and --namespace=NAMESPACE of kubectl, and --dry-run, which prints the commands and runs none.
# PATH must be seen by every host. docs/tpu.md walks through it, and says how the node pools are made.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
template=$(dirname -- "${BASH_SOURCE[0]}")/jobset.yaml

[[ ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit; }
action=${1:-}
case $action in
  apply | show | status | logs | delete) shift ;;
  *) die "unknown action ${action:-(none)}; the actions are apply, show, status, logs and delete" ;;
esac
name="" tpu="" topology="" image="" slices=1 spot=false restarts=100 grace=120 chips="" bucket="" account=default
where=() run=()
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} && name_like --name "$name" 40 ;;
    --tpu=?*) tpu=${1#*=} ;;
    --topology=?*) topology=${1#*=} ;;
    --image=?*) image=${1#*=} ;;
    --slices=*) slices=${1#*=} && whole --slices "$slices" 1 ;;
    --spot) spot=true ;;
    --restarts=*) restarts=${1#*=} && whole --restarts "$restarts" 0 ;;
    --grace=*) grace=${1#*=} && whole --grace "$grace" 1 ;;
    --chips-per-host=*) chips=${1#*=} && whole --chips-per-host "$chips" 1 ;;
    --bucket=?*) bucket=${1#*=} ;;
    --service-account=?*) account=${1#*=} ;;
    --context=?* | --namespace=?*) where+=("$1") ;;
    --dry-run) dry_run=true ;;
    --) shift && run=("$@") && break ;;
    *) die "unknown argument $1; \`$me --help\` lists the options, and the run comes after --" ;;
  esac
  shift
done
[[ -n $name ]] || die "--name=NAME is missing: what is the run called?"
kubectl=(kubectl "${where[@]}")

# A JSON string, which is a YAML string too; control characters other than these have no business in an argument.
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
  # Kubernetes replaces $(NAME) in arguments, and makes one $ of two.
  for word in "$@"; do list+="${list:+, }$(json "${word//\$/\$\$}")" || exit; done
  printf '[%s]' "$list"
}

# Labels: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
describe_slice() { # sets accelerator, chips and hosts
  local dimensions usual=4 all=1 size
  case $tpu in
    v4) accelerator=tpu-v4-podslice dimensions=3 ;;
    v5e) accelerator=tpu-v5-lite-podslice dimensions=2 ;;
    v5p) accelerator=tpu-v5p-slice dimensions=3 ;;
    v6e) accelerator=tpu-v6e-slice dimensions=2 ;;
    tpu7x) accelerator=tpu7x dimensions=3 ;;
    "") die "--tpu is missing: v4, v5e, v5p, v6e or tpu7x" ;;
    *) die "--tpu=$tpu is none of v4, v5e, v5p, v6e and tpu7x" ;;
  esac
  [[ -n $topology ]] || die "--topology is missing: the chips of one slice, such as $([[ $dimensions == 3 ]] && echo 2x2x2 || echo 4x4)"
  [[ $topology =~ ^[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){$((dimensions - 1))}$ ]] ||
    die "--topology=$topology is not $dimensions sizes joined by x, as those of $tpu are"
  for size in ${topology//x/ }; do all=$((all * size)); done
  if ((all < usual)); then usual=$all; fi
  : "${chips:=$usual}"
  ((chips <= all && all % chips == 0)) || die "--topology=$topology has $all chips, which --chips-per-host=$chips does not divide"
  hosts=$((all / chips))
}

manifest() {
  local nodes mounts volumes annotations text
  nodes="{cloud.google.com/gke-tpu-accelerator: $accelerator, cloud.google.com/gke-tpu-topology: $topology"
  if "$spot"; then nodes+=', cloud.google.com/gke-spot: "true"'; fi
  nodes+="}"
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
  fill IMAGE "$(json "$image")"
  fill RUN "$arguments" # last: whatever it holds stays as it is
  printf '%s\n' "$text"
}

if [[ $action == apply || $action == show ]]; then
  check_run "${run[@]}"
  describe_slice
  [[ -n $image ]] || die "--image=IMAGE is missing: launch/gke/Dockerfile makes one"
  arguments=$(json_list "${run[@]}")
fi
if [[ $action == show ]]; then
  manifest
  exit
fi
need kubectl "install it and connect it to the cluster: gcloud container clusters get-credentials"

# Sets `state`: ABSENT, RUNNING, Completed or Failed.
state=ABSENT
ask() {
  local answer
  answer=$("${kubectl[@]}" get jobsets --field-selector="metadata.name=$name" \
    -o 'jsonpath={range .items[*]}{.metadata.name}={.status.terminalState}{end}') ||
    fail "the cluster does not say what JobSets it has; it must be reachable, and have JobSet: https://jobset.sigs.k8s.io/docs/installation"
  case $answer in
    "") state=ABSENT ;;
    "$name=") state=RUNNING ;;
    *) state=${answer#*=} ;;
  esac
}
remove() { act "${kubectl[@]}" delete jobset "$name" --ignore-not-found --wait; }

case $action in
  apply)
    if ! "$dry_run"; then
      ask
      case $state in
        ABSENT) ;;
        Failed) say "$name has failed; beginning it again" && remove ;;
        Completed) say "$name is done; to run it once more: $me delete first" && exit ;;
        *) say "$name is going on already; it was left alone" && exit ;;
      esac
    fi
    if "$dry_run"; then
      manifest
      act "${kubectl[@]}" apply -f -
    else
      manifest | act "${kubectl[@]}" apply -f -
    fi
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
