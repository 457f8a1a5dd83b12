#!/usr/bin/env bash
# Runs bertzoo as N processes of one run on this machine; every line of output is marked with its process.
#
#   launch/local_multi.sh [--dry-run] [--devices-per-process=K] [--grace=SECONDS] \
#     N [pretrain|transfer|prune] CONFIG --run_dir=RUN [--a.b=value …]
#
# --devices-per-process simulates K devices per process on the CPU; by default a process uses the devices that JAX
# finds. SIGTERM and Ctrl-C are passed on to all processes, which then save. The script exits with the code of the first
# process that failed. The others get SECONDS (60) to end by themselves, then SIGTERM and, 10 seconds later, SIGKILL.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

devices="" grace=60
while (($#)); do
  case $1 in
    --dry-run) dry_run=true ;;
    --devices-per-process=*) devices=${1#*=} && whole --devices-per-process "$devices" 1 ;;
    --grace=*) grace=${1#*=} && whole --grace "$grace" 0 ;;
    --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    -*) die "unknown option $1; the options are --devices-per-process=K, --grace=SECONDS and --dry-run" ;;
    *) break ;;
  esac
  shift
done
(($#)) || die "the number of processes is missing: $me N CONFIG --run_dir=RUN …"
processes=$1
shift
whole N "$processes" 1
take_run "$@"
need bertzoo "install it, or activate the environment that has it"

# Print a port on which nothing listens, above those that Linux uses for outgoing connections.
free_port() {
  local port
  for _ in {1..50}; do
    port=$((61000 + RANDOM % 4500))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
  done
  fail "no free port was found"
}

port=$(free_port)
settings=()
if [[ -n $devices ]]; then
  settings=(
    JAX_PLATFORMS=cpu
    "XLA_FLAGS=${XLA_FLAGS:+$XLA_FLAGS }--xla_force_host_platform_device_count=$devices"
  )
fi
command_of() { # command_of I -> the array `command`
  command=(
    env "${settings[@]}" bertzoo "${run[@]}" "--distributed.coordinator=127.0.0.1:$port"
    "--distributed.processes=$processes" "--distributed.process=$1"
  )
}
if "$dry_run"; then
  for ((i = 0; i < processes; i++)); do
    command_of "$i"
    act "${command[@]}"
  done
  exit
fi

pipes=$(mktemp -d)
pids=() readers=() stopping=false
mark() { while IFS= read -r line || [[ -n $line ]]; do printf '[%s] %s\n' "$1" "$line"; done; }
alive() { # prints the indices of the processes that still run
  local index
  for index in "${!pids[@]}"; do
    [[ -n ${codes[index]:-} ]] || echo "$index"
  done
}
# Kill stopped processes and their children, which neither detect another process's failure nor handle SIGTERM.
kill_stopped() {
  local index pid
  for index in $(alive); do
    for pid in $(ps -o pid=,state= -p "${pids[index]}" --ppid "${pids[index]}" | awk '$2 == "T" { print $1 }'); do
      say "process $index is stopped (SIGSTOP), so it is killed" >&2
      kill -KILL "$pid" "${pids[index]}" 2>/dev/null || true
    done
  done
}
signal() { # signal NAME: send it to all processes that still run
  local index
  for index in $(alive); do kill "-$1" "${pids[index]}" 2>/dev/null || true; done
}
trap 'signal KILL; kill "${readers[@]}" 2>/dev/null || true; rm -rf -- "$pipes"' EXIT
trap 'stopping=true; signal TERM' TERM INT

codes=()
for ((i = 0; i < processes; i++)); do
  mkfifo "$pipes/$i"
  mark "$i" <"$pipes/$i" &
  readers+=("$!")
  command_of "$i"
  "${command[@]}" >"$pipes/$i" 2>&1 &
  pids+=("$!")
done

first=0 failed_at="" terminated=false
while [[ -n $(alive) ]]; do
  for i in $(alive); do
    kill -0 "${pids[i]}" 2>/dev/null && continue
    codes[i]=0
    wait "${pids[i]}" || codes[i]=$?
    if ((codes[i] && !first)); then
      first=${codes[i]} failed_at=$SECONDS
      say "process $i ended with exit code $first" >&2
    fi
  done
  if [[ -n $failed_at && -n $(alive) ]]; then
    kill_stopped
    if ((SECONDS - failed_at >= grace + 10)); then
      signal KILL
    elif ((SECONDS - failed_at >= grace)) && ! "$terminated"; then
      say "ending the others" >&2
      terminated=true
      signal TERM
    fi
  fi
  sleep 0.1 || true # a signal ends it early
done
"$stopping" && ((first == 0)) && say "all had finished before they could be stopped" >&2
# A worker that outlived its process may hold the pipe open.
for _ in {1..20}; do
  kill -0 "${readers[@]}" 2>/dev/null || break
  sleep 0.05
done
exit "$first"
