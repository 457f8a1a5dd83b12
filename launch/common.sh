# shellcheck shell=bash
# What the launchers share; sourced, never run. They know how processes are started, and nothing of what these learn.

if ((BASH_VERSINFO[0] < 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] < 4))); then
  echo "$(basename -- "$0"): bash $BASH_VERSION is too old, 4.4 or newer is needed" >&2
  exit 2
fi

me=$(basename -- "$0")
configs=$(dirname -- "${BASH_SOURCE[0]}")/../configs
dry_run=false

say() { printf '%s: %s\n' "$me" "$*"; }

# A person's mistake: one sentence, and the exit code that says not to try again.
die() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 2
}

# Something that went wrong by itself.
fail() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 1
}

# The words as a shell would have to read them.
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

# The program must be there before anything is begun; a dry run needs none.
need() {
  "$dry_run" || command -v "$1" >/dev/null || die "$1 is not on the PATH; $2"
}

whole() { # whole OPTION VALUE LEAST
  [[ $2 =~ ^[0-9]{1,9}$ ]] || die "$1=$2 is not a whole number"
  ((10#$2 >= $3)) || die "$1=$2 is less than $3"
}

# What cloud services take as a name, and a hostname too.
name_like() { # name_like OPTION VALUE LONGEST
  if ! [[ $2 =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || ((${#2} > $3)); then
    die "$1=$2 is not a name of at most $3 lower-case letters, digits and inner dashes that begins with a letter"
  fi
}

# Sets `run` to the arguments of `bertzoo`: the verb, which may be left out where it is pretrain, and what follows it.
# They must name a config and a run directory before anything is rented for them.
run=()
take_run() {
  local verb=pretrain word last=""
  case ${1:-} in pretrain | transfer | prune) verb=$1 && shift ;; esac
  (($#)) || die "no run is given; it is what follows \`bertzoo\`: [pretrain|transfer|prune] CONFIG --run_dir=PATH …"
  [[ $1 != -* ]] || die "the run begins with the option $1; the config comes first: CONFIG --run_dir=PATH …"
  # finetune is both a verb and a config; no launcher takes either.
  [[ $1 != finetune ]] ||
    die "finetune needs no launcher: run \`bertzoo finetune\` itself. The launchers take pretrain, transfer and prune: [VERB] CONFIG --run_dir=PATH …"
  [[ $1 == *.toml || $1 == */* || -f $1 || -f $configs/$1.toml ]] ||
    die "$1 is no config in configs/, and of the verbs only pretrain, transfer and prune are launched: [VERB] CONFIG --run_dir=PATH …"
  # shellcheck disable=SC2034 # who sources this reads it
  run=("$verb" "$@")
  for word in "$@"; do
    if [[ $verb == prune && $last$word == --run_dir=*://* ]]; then
      die "prune writes no run to the URL ${word#*=}; mount it on every worker, and name --run_dir there"
    fi
    last=""
    [[ $word != --run_dir ]] || last=--run_dir=
  done
  for word in "$@"; do
    [[ $word != --run_dir && $word != --run_dir=?* ]] || return 0
  done
  die "the run has no --run_dir=PATH, and without one nothing could be resumed"
}

# What the exit codes of all processes of a run mean together: 0 done, "again", or the code of the one that failed.
# `bertzoo` exits with 0 when done, 2 for a person's mistake, 3 when stopped and saved, 4 when another host was lost.
# A process that a signal killed (128 and more) is a lost host.
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
