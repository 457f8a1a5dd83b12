"""The commands and flags that launchers may use, as the pages named here document them; the fakes reject others.

It lists only what launchers could need: a missing flag is rejected until someone looks it up. gcloud's were compared
with the help of its version 528.
"""

# A command in each line, continued by indented ones: the number of its positional words, or PROGRAM for a program whose
# arguments follow; required flags with a value (--x=!), other flags with a value (--x=), flags without one (--x). The
# page that documents the commands stands above them.
DOCUMENTED = """
# https://cloud.google.com/sdk/gcloud/reference, then the words of the command
gcloud compute tpus queued-resources create: 1 --accelerator-type=! --node-id=! --runtime-version=! --zone=!
  --description= --labels= --metadata= --network= --node-count= --node-prefix= --scopes= --service-account=
  --subnetwork= --tags= --topology= --type= --async --guaranteed --internal-ips --quiet --reserved
  --shielded-secure-boot --spot
gcloud alpha compute tpus queued-resources create: 1 --accelerator-type=! --node-id=! --runtime-version=! --zone=!
  --max-run-duration= --provisioning-model=
gcloud compute tpus queued-resources describe: 1 --zone=! --quiet
gcloud compute tpus queued-resources delete: 1 --zone=! --async --force --quiet
gcloud compute tpus tpu-vm ssh: 1 --zone=! --command= --output-directory= --ssh-flag= --ssh-key-file=
  --strict-host-key-checking= --worker= --dry-run --force-key-file-overwrite --internal-ip --plain --quiet
gcloud compute tpus tpu-vm scp: 2-99 --zone=! --scp-flag= --ssh-key-file= --strict-host-key-checking= --worker=
  --compress --dry-run --force-key-file-overwrite --internal-ip --plain --quiet --recurse
gcloud compute instance-groups managed create: 1 --size=! --template=! --zone=! --base-instance-name=
  --default-action-on-vm-failure= --description= --target-size-policy-mode= --workload-policy= --quiet
gcloud compute instance-groups managed describe: 1 --zone=
gcloud compute instance-groups managed list-instances: 1 --limit= --zone=
gcloud compute instance-groups managed delete: 1 --zone= --quiet
gcloud compute instance-templates create: 1 --boot-disk-size= --image-family= --image-project=
  --instance-termination-action= --machine-type= --maintenance-policy= --max-run-duration= --provisioning-model=
  --reservation-affinity= --scopes=
gcloud compute resource-policies create workload-policy: 1 --type=! --accelerator-topology=
  --accelerator-topology-mode= --description= --region=
gcloud compute ssh: 1 --command= --ssh-flag= --ssh-key-file= --strict-host-key-checking= --zone= --dry-run
  --internal-ip --plain --quiet --tunnel-through-iap
gcloud compute scp: 2-99 --scp-flag= --ssh-key-file= --strict-host-key-checking= --zone= --compress --dry-run
  --internal-ip --plain --quiet --recurse --tunnel-through-iap
# https://curl.se/docs/manpage.html
curl: 1 --header= --max-time= --fail --silent
# https://cloud.google.com/sdk/gcloud/reference, then the words of the command
gcloud storage cp: 2-99 --recursive
# https://kubernetes.io/docs/reference/kubectl/generated
kubectl wait: 1-2 --for= --selector= --timeout=
kubectl apply: --field-manager= --filename= --timeout= --validate= -f= --force --server-side --wait
kubectl get: 1-2 --field-selector= --output= --selector= -l= -o= --ignore-not-found --no-headers --watch
kubectl delete: 2 --cascade= --grace-period= --timeout= --ignore-not-found --now --wait
kubectl logs: --container= --max-log-requests= --selector= --since= --tail= -c= -l= --all-containers --follow --prefix
  --previous
# https://slurm.schedmd.com
sbatch: PROGRAM --comment= --gpus-per-node= --job-name= --nodes= --ntasks-per-node= --open-mode= --output=
  --partition= --signal= --time= --no-requeue --parsable --requeue --test-only
srun: PROGRAM --kill-on-bad-exit= --nodes= --ntasks= --wait= --label --unbuffered
squeue: --format= --jobs= --name= --user= --me --noheader
scancel: 0-99 --name= --signal= --state= --batch --me
scontrol requeue: 1
# https://developer.android.com/tools/adb
adb get-state:
adb push: 2-99
adb pull: 2-99
adb shell: PROGRAM
# https://ai.google.dev/edge/litert/models/measurement
benchmark_model: --graph=! --signature_to_run_for=! --input_layer= --input_layer_shape= --input_layer_value_files=
  --min_secs= --num_runs= --num_threads= --output_filepath= --use_gpu= --use_nnapi= --use_xnnpack= --warmup_min_secs=
  --warmup_runs=
# https://docs.astral.sh/uv/reference/cli
uv venv: 1 --python= --allow-existing --quiet
uv pip install: 0-99 --constraints= --editable= --python= --quiet
"""
# Flags with a value of every command: https://cloud.google.com/sdk/gcloud/reference#GLOBAL-FLAGS, kubectl_options.
WIDE = {"gcloud": {"--project", "--format"}, "kubectl": {"--context", "--namespace"}}
# The states of a queued resource: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources
STATES = {
    *("CREATING", "ACCEPTED", "PROVISIONING", "FAILED", "DELETING", "ACTIVE", "SUSPENDING", "SUSPENDED"),
    *("WAITING_FOR_RESOURCES", "STATE_UNSPECIFIED"),
}


class Command:
    """A command of DOCUMENTED, such as "uv venv: 1 --python= --quiet".

    valued, bare, required: its flags with a value, without one, and required; words: the least and the greatest number
    of positional words; rest: whether the first of them is a program, whose arguments follow.
    """

    def __init__(self, name: str, arguments: str):
        flags = [word for word in arguments.split() if word.startswith("-")]
        (number,) = [word for word in arguments.split() if not word.startswith("-")] or ["0"]
        self.valued = {flag.partition("=")[0] for flag in flags if "=" in flag} | WIDE.get(name.split()[0], set())
        self.bare = {flag for flag in flags if "=" not in flag}
        self.required = {flag.removesuffix("=!") for flag in flags if flag.endswith("=!")}
        self.rest = number == "PROGRAM"
        least, _, most = ("1" if self.rest else number).partition("-")
        self.words = int(least), int(most or least)


ENTRIES = [line.partition(":") for line in DOCUMENTED.replace("\n  ", " ").splitlines() if line[:1] not in ("", "#")]
COMMANDS = {name: Command(name, arguments) for name, _, arguments in ENTRIES}


def refusal(argv: list[str]) -> str | None:
    """Return why the documented program would reject the command line `argv`, or None."""
    name = next((" ".join(argv[:n]) for n in range(len(argv), 0, -1) if " ".join(argv[:n]) in COMMANDS), None)
    if argv[0] == "kubectl" and name is None:  # its wide flags may stand first
        plain = [word for word in argv if word.split("=")[0] not in WIDE["kubectl"]]
        return refusal(plain) if len(plain) < len(argv) else f"unknown command {argv[:2]}"
    if name is None:
        return f"unknown command {' '.join(argv[:5])}"
    command = COMMANDS[name]
    words, given, rest = [], set(), iter(argv[len(name.split()) :])
    for word in rest:
        flag, equals, _ = word.partition("=")
        if word == "-" or not word.startswith("-"):
            words.append(word)
            if command.rest:
                break
        elif flag in command.valued:
            given.add(flag)
            if not equals and next(rest, None) is None:
                return f"{name}: {flag} needs a value"
        elif flag in command.bare and not equals:
            given.add(flag)
        else:
            return f"{name}: unrecognized argument {word}"
    if missing := command.required - given:
        return f"{name}: {', '.join(sorted(missing))} must be specified"
    if not command.words[0] <= len(words) <= command.words[1]:
        return f"{name}: {len(words)} positional arguments"
    return None
