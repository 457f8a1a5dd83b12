"""The commands and flags that launchers may use, as the pages named here document them; the fakes reject others.

It lists only what launchers could need: a missing flag is rejected until someone looks it up. gcloud's were compared
with the help of its version 528.
"""


class Command:
    """Arguments of a command: flags with a value (--x=v), flags without, required flags, positional words."""

    def __init__(
        self,
        source: str,
        valued: frozenset[str] = frozenset(),
        bare: frozenset[str] = frozenset(),
        required: frozenset[str] = frozenset(),
        words: tuple[int, int] = (0, 0),
        rest: bool = False,  # the first positional word is a program; the rest are its arguments
    ):
        self.source, self.valued, self.bare, self.required = source, valued, bare, required
        self.words, self.rest = words, rest


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GCLOUD_REFERENCE = "https://cloud.google.com/sdk/gcloud/reference/compute/tpus"
COMPUTE_REFERENCE = "https://cloud.google.com/sdk/gcloud/reference/compute"
WIDE = names("--project --format")  # https://cloud.google.com/sdk/gcloud/reference#GLOBAL-FLAGS, and --quiet
SSH = names("--zone --worker --ssh-flag --ssh-key-file --strict-host-key-checking")
ADB_REFERENCE = "https://developer.android.com/tools/adb"
KUBECTL_REFERENCE = "https://kubernetes.io/docs/reference/kubectl/generated"
KUBECTL = names("--context --namespace")  # kubectl_options

COMMANDS = {
    "gcloud compute tpus queued-resources create": Command(
        f"{GCLOUD_REFERENCE}/queued-resources/create",
        names(
            "--zone --runtime-version --accelerator-type --topology --type --node-id --node-count --node-prefix "
            "--labels --description --metadata --network --subnetwork --service-account --scopes --tags"
        )
        | WIDE,
        names("--async --guaranteed --internal-ips --reserved --spot --shielded-secure-boot --quiet"),
        names("--zone --runtime-version --accelerator-type --node-id"),
        (1, 1),
    ),
    "gcloud alpha compute tpus queued-resources create": Command(
        "https://cloud.google.com/sdk/gcloud/reference/alpha/compute/tpus/queued-resources/create",
        names("--zone --runtime-version --accelerator-type --node-id --provisioning-model --max-run-duration") | WIDE,
        required=names("--zone --runtime-version --accelerator-type --node-id"),
        words=(1, 1),
    ),
    "gcloud compute tpus queued-resources describe": Command(
        f"{GCLOUD_REFERENCE}/queued-resources/describe",
        names("--zone") | WIDE,
        names("--quiet"),
        names("--zone"),
        (1, 1),
    ),
    "gcloud compute tpus queued-resources delete": Command(
        f"{GCLOUD_REFERENCE}/queued-resources/delete",
        names("--zone") | WIDE,
        names("--async --force --quiet"),
        names("--zone"),
        (1, 1),
    ),
    "gcloud compute tpus tpu-vm ssh": Command(
        f"{GCLOUD_REFERENCE}/tpu-vm/ssh",
        names("--command --output-directory") | SSH | WIDE,
        names("--dry-run --force-key-file-overwrite --internal-ip --plain --quiet"),
        names("--zone"),
        (1, 1),
    ),
    "gcloud compute tpus tpu-vm scp": Command(
        f"{GCLOUD_REFERENCE}/tpu-vm/scp",
        (names("--scp-flag") | SSH | WIDE) - names("--ssh-flag"),
        names("--compress --dry-run --force-key-file-overwrite --internal-ip --plain --recurse --quiet"),
        names("--zone"),
        (2, 99),
    ),
    "gcloud compute instance-groups managed create": Command(
        f"{COMPUTE_REFERENCE}/instance-groups/managed/create",
        names(
            "--zone --size --template --target-size-policy-mode --default-action-on-vm-failure --workload-policy "
            "--base-instance-name --description"
        )
        | WIDE,
        names("--quiet"),
        names("--zone --size --template"),
        (1, 1),
    ),
    "gcloud compute instance-groups managed describe": Command(
        f"{COMPUTE_REFERENCE}/instance-groups/managed/describe", names("--zone") | WIDE, words=(1, 1)
    ),
    "gcloud compute instance-groups managed list-instances": Command(
        f"{COMPUTE_REFERENCE}/instance-groups/managed/list-instances", names("--zone --limit") | WIDE, words=(1, 1)
    ),
    "gcloud compute instance-groups managed delete": Command(
        f"{COMPUTE_REFERENCE}/instance-groups/managed/delete", names("--zone") | WIDE, names("--quiet"), words=(1, 1)
    ),
    "gcloud compute instance-templates create": Command(
        f"{COMPUTE_REFERENCE}/instance-templates/create",
        names(
            "--machine-type --image-project --image-family --boot-disk-size --maintenance-policy --scopes "
            "--provisioning-model --instance-termination-action --max-run-duration --reservation-affinity"
        )
        | WIDE,
        words=(1, 1),
    ),
    "gcloud compute resource-policies create workload-policy": Command(
        f"{COMPUTE_REFERENCE}/resource-policies/create/workload-policy",
        names("--type --region --accelerator-topology --accelerator-topology-mode --description") | WIDE,
        required=names("--type"),
        words=(1, 1),
    ),
    "gcloud compute ssh": Command(
        f"{COMPUTE_REFERENCE}/ssh",
        names("--command --zone --ssh-flag --ssh-key-file --strict-host-key-checking") | WIDE,
        names("--dry-run --internal-ip --plain --quiet --tunnel-through-iap"),
        words=(1, 1),
    ),
    "gcloud compute scp": Command(
        f"{COMPUTE_REFERENCE}/scp",
        names("--scp-flag --zone --ssh-key-file --strict-host-key-checking") | WIDE,
        names("--compress --dry-run --internal-ip --plain --quiet --recurse --tunnel-through-iap"),
        words=(2, 99),
    ),
    "curl": Command(
        "https://curl.se/docs/manpage.html", names("--max-time --header"), names("--silent --fail"), words=(1, 1)
    ),
    "gcloud storage cp": Command(
        "https://cloud.google.com/sdk/gcloud/reference/storage/cp", bare=names("--recursive"), words=(2, 99)
    ),
    "kubectl wait": Command(
        f"{KUBECTL_REFERENCE}/kubectl_wait/", names("--for --timeout --selector") | KUBECTL, words=(1, 2)
    ),
    "kubectl apply": Command(
        f"{KUBECTL_REFERENCE}/kubectl_apply/",
        names("--filename -f --validate --timeout --field-manager") | KUBECTL,
        names("--server-side --wait --force"),
    ),
    "kubectl get": Command(
        f"{KUBECTL_REFERENCE}/kubectl_get/",
        names("--field-selector --selector -l --output -o") | KUBECTL,
        names("--ignore-not-found --no-headers --watch"),
        words=(1, 2),
    ),
    "kubectl delete": Command(
        f"{KUBECTL_REFERENCE}/kubectl_delete/",
        names("--timeout --grace-period --cascade") | KUBECTL,
        names("--ignore-not-found --wait --now"),
        words=(2, 2),
    ),
    "kubectl logs": Command(
        f"{KUBECTL_REFERENCE}/kubectl_logs/",
        names("--tail --container -c --selector -l --since --max-log-requests") | KUBECTL,
        names("--follow --prefix --previous --all-containers"),
    ),
    "sbatch": Command(
        "https://slurm.schedmd.com/sbatch.html",
        names(
            "--job-name --comment --nodes --ntasks-per-node --open-mode --signal --partition --time --gpus-per-node "
            "--output"
        ),
        names("--requeue --no-requeue --parsable --test-only"),
        words=(1, 1),
        rest=True,
    ),
    "srun": Command(
        "https://slurm.schedmd.com/srun.html",
        names("--kill-on-bad-exit --wait --nodes --ntasks"),
        names("--label --unbuffered"),
        words=(1, 1),
        rest=True,
    ),
    "squeue": Command(
        "https://slurm.schedmd.com/squeue.html", names("--name --jobs --format --user"), names("--me --noheader")
    ),
    "scancel": Command(
        "https://slurm.schedmd.com/scancel.html", names("--name --signal --state"), names("--me --batch"), words=(0, 99)
    ),
    "scontrol requeue": Command("https://slurm.schedmd.com/scontrol.html", words=(1, 1)),
    "adb get-state": Command(ADB_REFERENCE),
    "adb push": Command(ADB_REFERENCE, words=(2, 99)),
    "adb pull": Command(ADB_REFERENCE, words=(2, 99)),
    "adb shell": Command(ADB_REFERENCE, words=(1, 1), rest=True),
    "benchmark_model": Command(
        "https://ai.google.dev/edge/litert/models/measurement",
        names(
            "--graph --signature_to_run_for --input_layer --input_layer_shape --input_layer_value_files "
            "--output_filepath --num_runs --warmup_runs --warmup_min_secs --min_secs --num_threads --use_xnnpack "
            "--use_gpu --use_nnapi"
        ),
        required=names("--graph --signature_to_run_for"),
    ),
    "uv venv": Command(
        "https://docs.astral.sh/uv/reference/cli/#uv-venv",
        names("--python"),
        names("--quiet --allow-existing"),
        words=(1, 1),
    ),
    "uv pip install": Command(
        "https://docs.astral.sh/uv/reference/cli/#uv-pip-install",
        names("--python --constraints --editable"),
        names("--quiet"),
        words=(0, 99),
    ),
}
# The states of a queued resource: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources
STATES = names(
    "CREATING ACCEPTED PROVISIONING FAILED DELETING ACTIVE SUSPENDING SUSPENDED WAITING_FOR_RESOURCES STATE_UNSPECIFIED"
)


def refusal(argv: list[str]) -> str | None:
    """Return why the documented program would reject the command line `argv`, or None."""
    name = next((" ".join(argv[:n]) for n in range(len(argv), 0, -1) if " ".join(argv[:n]) in COMMANDS), None)
    if argv[0] == "kubectl" and name is None:  # its wide flags may stand first
        plain = [word for word in argv if word.split("=")[0] not in KUBECTL]
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
