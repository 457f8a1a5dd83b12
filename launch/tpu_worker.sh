#!/usr/bin/env bash
# The script that runs on each worker; launch/tpu_vm.sh copies it there and calls it:
# install | allow | start RUN… | status [RUN…] | stop | tail [NUMBER].
#
# A run is started detached, so that it outlives the connection. ~/bertzoo-run holds its arguments, its log and, at its
# end, its exit code. The lock there is held as long as any process of the run lives, which shows whether a run is
# running. If the file `stopped` is there, a user has stopped the run, and nothing is started until `allow` removes the
# file.
set -euo pipefail

tree=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$HOME/bertzoo-venv
state=$HOME/bertzoo-run
mkdir -p "$state"

running() { ! flock --nonblock "$state/lock" true; }
words() { printf '%q ' "$@"; }
another() { [[ $(words "$@") != "$(cat -- "$state/run" 2>/dev/null)" ]]; } # another RUN…: whether RUN is not the run that was started last

# Print a value about this machine from Google's metadata server.
metadata() {
  curl --silent --fail --max-time 5 --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

# Print the flags that name the run's other hosts. jax finds them itself, if the metadata number this host as those of
# TPU VMs do; a host that Compute Engine's API made may have its number under another name.
name_hosts() {
  local number addresses
  ! metadata agent-worker-number >/dev/null || return 0
  number=$(metadata worker-id) && addresses=$(metadata worker-network-endpoints) || return 0
  IFS=, read -r -a addresses <<<"$addresses" # in the order of the numbers, each an address or name:number:address
  ((${#addresses[@]} < 2)) ||
    printf '%s\n' "--distributed.coordinator=${addresses[0]##*:}:8476" \
      "--distributed.processes=${#addresses[@]}" "--distributed.process=$number"
}

case ${1:-} in
  install)
    # The images of TPU VMs have Python 3.10, and bertzoo needs 3.11: uv installs one.
    export PATH="$HOME/.local/bin:$PATH"
    command -v uv >/dev/null || python3 -m pip install --quiet --user uv
    uv venv --quiet --allow-existing --python=3.11 "$venv"
    cd -- "$tree"
    uv pip install --quiet --python="$venv/bin/python" --constraints=constraints.txt --editable='.[gcs,sentencepiece,tensorboard,zstd]' 'jax[tpu]'
    ;;
  allow) running || rm -f "$state/stopped" ;; # while the run is being stopped, keep the mark
  start)
    shift
    if running; then
      if another "$@"; then
        echo "bertzoo-worker: another run is still running here: $(cat -- "$state/run")" >&2
        exit 2
      fi
      echo "bertzoo-worker: running already"
      exit
    fi
    if [[ -e $state/stopped ]]; then
      echo "bertzoo-worker: stopped; not started again"
      exit
    fi
    rm -f "$state/exit"
    words "$@" >"$state/run"
    touch "$state/started"
    cd -- "$tree"
    # Not --nonblock: `running` holds the lock for a moment while it tests it.
    setsid --fork flock --timeout=10 "$state/lock" bash "$tree/launch/tpu_worker.sh" supervise "$@" \
      >>"$state/log" 2>&1 </dev/null
    for _ in {1..50}; do # so that the next `status` does not report the run before
      if running || [[ -e $state/exit ]]; then break; fi
      sleep 0.1
    done
    echo "bertzoo-worker: started"
    ;;
  supervise)
    shift
    printf '\n== %s: bertzoo' "$(date -u +%FT%TZ)"
    printf ' %q' "$@"
    echo
    code=0
    mapfile -t others < <(name_hosts)
    "$venv/bin/bertzoo" "$@" "${others[@]}" &
    child=$!
    echo "$child" >"$state/pid"
    trap 'kill -TERM "$child" 2>/dev/null || true' TERM
    wait "$child" || code=$?
    while kill -0 "$child" 2>/dev/null; do # a signal ended the wait, not the run
      code=0
      wait "$child" || code=$?
    done
    echo "$code" >"$state/exit.new"
    mv -- "$state/exit.new" "$state/exit" # so that no half-written file is ever read
    ;;
  status) # with RUN…, the state of that run
    shift
    if running; then
      # A run writes its arguments before it takes the lock: if there are none, this machine is being deleted.
      # Read them once, because that may happen at any moment.
      last=$(cat -- "$state/run" 2>/dev/null) && [[ -n $last ]] || exit 1
      if (($#)) && [[ $(words "$@") != "$last" ]]; then
        echo "bertzoo-worker: another $last"
      else
        echo "bertzoo-worker: running"
      fi
    elif (($#)) && [[ -e $state/stopped ]] && { another "$@" || [[ $(cat -- "$state/exit" 2>/dev/null) != [012] ]]; }; then
      echo "bertzoo-worker: stopped"
    elif (($#)) && another "$@"; then
      echo "bertzoo-worker: idle"
    elif [[ -e $state/exit ]]; then
      echo "bertzoo-worker: exit $(<"$state/exit")"
    elif [[ -e $state/started ]]; then
      echo "bertzoo-worker: exit 137" # killed before it wrote a code, as when the machine restarts
    else
      echo "bertzoo-worker: idle"
    fi
    ;;
  stop)
    running || exit 0
    kill -TERM "$(<"$state/pid")" 2>/dev/null || true
    for _ in {1..300}; do
      running || exit 0
      sleep 1
    done
    kill -KILL "$(<"$state/pid")" 2>/dev/null || true
    ;;
  tail) # with NUMBER, only on the host of that number
    [[ -z ${2:-} || $2 == "$(metadata agent-worker-number || metadata worker-id || echo 0)" ]] || exit 0
    touch "$state/log"
    exec tail -n 100 -F "$state/log"
    ;;
  *)
    echo "tpu_worker.sh: unknown action ${1:-}; this is called by launch/tpu_vm.sh" >&2
    exit 2
    ;;
esac
