# shellcheck shell=bash
# Functions that the launchers share. This file is sourced, never run.

if ((BASH_VERSINFO[0] < 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] < 4))); then
  echo "$(basename -- "$0"): bash $BASH_VERSION is too old, 4.4 or newer is needed" >&2
  exit 2
fi

me=$(basename -- "$0")
configs=$(dirname -- "${BASH_SOURCE[0]}")/../configs
dry_run=false

say() { printf '%s: %s\n' "$me" "$*"; }

# Report a user's mistake and exit with 2, which means that a retry cannot help.
die() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 2
}

# Report a failure that is not the user's mistake and exit with 1.
fail() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 1
}

# Print the words quoted for a shell.
quoted() {
  local text
  printf -v text '%q ' "$@"
  printf '%s' "${text% }"
}

# Print a command, and run it unless this is a dry run.
act() {
  printf '+ %s\n' "$(quoted "$@")"
  "$dry_run" || "$@"
}

# Stop unless the program is on the PATH; a dry run needs none.
need() {
  "$dry_run" || command -v "$1" >/dev/null || die "$1 is not on the PATH; $2"
}

whole() { # whole OPTION VALUE LEAST
  [[ $2 =~ ^[0-9]{1,9}$ ]] || die "$1=$2 is not a whole number"
  ((10#$2 >= $3)) || die "$1=$2 is less than $3"
}

# Stop unless the value is a name that cloud services and hostnames allow.
name_like() { # name_like OPTION VALUE LONGEST
  if ! [[ $2 =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || ((${#2} > $3)); then
    die "$1=$2 is not a name of at most $3 lower-case letters, digits and inner dashes that begins with a letter"
  fi
}

# Set `run` to the arguments of `bertzoo`: the verb, by default pretrain, and what follows it. Stop unless they name a
# config and a run directory, before anything is rented for them.
run=()
take_run() {
  local verb=pretrain word last=""
  case ${1:-} in pretrain | transfer | prune) verb=$1 && shift ;; esac
  (($#)) || die "the run is missing: give the arguments of \`bertzoo\`, [pretrain|transfer|prune] CONFIG --run_dir=PATH …"
  [[ $1 != -* ]] || die "the run begins with the option $1; the config comes first: CONFIG --run_dir=PATH …"
  # finetune is both a verb and a config; no launcher takes either.
  [[ $1 != finetune ]] ||
    die "finetune needs no launcher: run \`bertzoo finetune\` itself. The launchers take pretrain, transfer and prune: [VERB] CONFIG --run_dir=PATH …"
  [[ $1 == *.toml || $1 == */* || -f $1 || -f $configs/$1.toml ]] ||
    die "$1 is neither a config in configs/ nor one of the verbs pretrain, transfer and prune: [VERB] CONFIG --run_dir=PATH …"
  # shellcheck disable=SC2034 # read by the scripts that source this
  run=("$verb" "$@")
  for word in "$@"; do
    if [[ $verb == prune && $last$word == --run_dir=*://* ]]; then
      die "prune cannot write to the URL ${word#*=}; mount it on every worker, and set --run_dir to the mounted path"
    fi
    last=""
    [[ $word != --run_dir ]] || last=--run_dir=
  done
  for word in "$@"; do
    [[ $word != --run_dir && $word != --run_dir=?* ]] || return 0
  done
  die "the run has no --run_dir=PATH, so it could not be resumed; add one"
}

# Print the joint meaning of the exit codes of a run's processes: 0 (done), "again" (restart), or the code of a failed
# one. `bertzoo` exits with 0 when done, 2 for a user's mistake, 3 when stopped and saved, 4 when another host was lost.
# A process killed by a signal (128 and more) counts as a lost host.
verdict() {
  local code again=0 failed=0
  for code in "$@"; do
    case $code in
      0) ;;
      2) echo 2 && return ;;
      3 | 4) again=1 ;;
      *) if ((code >= 128)); then again=1; elif ((failed == 0)); then failed=$code; fi ;;
    esac
  done
  if ((failed)); then echo "$failed"; elif ((again)); then echo again; else echo 0; fi
}
