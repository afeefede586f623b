/* SPDX-License-Identifier: Apache-2.0
 * tierckpt: inspects a job's checkpoints and sends requests to its agent. */
#include "cli/cli.h"
#include "cli/operation_text.h"
#include "cli/which.h"

#include "base/typo.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct cli *cli);
    int arguments;       /* at most */
    bool defaults;       /* works without a job, too */
    const char *options; /* of this command alone, by their letters below */
    const char *help;
} commands[] = {
    {"status", cli_status, 0, false, "w",
     "the agent, its term, nodes, trainers and newest versions (--wait: as soon as the agent answers)"},
    {"ls", cli_ls, 0, false, "", "versions in memory (as this node knows them) and on storage"},
    {"show", cli_show, 1, false, "",
     "STEP or TERM.STEP: the shards of one version and their holders (without either: this node's memory)"},
    {"plan", cli_plan, 0, false, "s", "what a recovery would do now, without doing it (--step N: for that step)"},
    {"verify", cli_verify, 1, false, "T", "recompute the digests: memory, published, or both (default)"},
    {"drain", cli_drain, 0, false, "w",
     "copy the newest committed version to storage now (--wait: return when it is published)"},
    {"prune", cli_prune, 0, false, "kd", "delete old published versions (--keep N, --dry-run)"},
    {"forget", cli_forget, 0, false, "df",
     "ignore all that was saved so far, so that the job starts from scratch; nothing is deleted (--dry-run;\n"
     "           --force: also on a server that cannot decide between this and a start)"},
    {"export", cli_export, 1, false, "sVMbtFIXPAaT",
     "DIRECTORY: the model's weights of a published version as a Hugging Face checkpoint"},
    {"config", cli_config, 0, true, "Sm",
     "every key with its default, the value in force and help (--set KEY=VALUE: change it while the job runs;\n"
     "           --markdown: the table of all keys)"},
    {"stop", cli_stop, 0, false, "f",
     "end the agents of the job and free their memory (--force: even if saved steps are lost)"},
    {"top", cli_top, 0, false, "", "the status of the job, renewed each second, with rates (q: quit)"},
    {"tune", cli_tune, 0, false, "npgly", "the intervals and copies that cost the running training least"},
    {"doctor", cli_doctor, 0, true, "R",
     "check this machine, and launcher settings that are known to break recovery (--network: and measure how fast\n"
     "           the agent sends to the other nodes)"},
};

static void usage(FILE *to)
{
    fputs("Usage: tierckpt [options] COMMAND\n\n", to);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
    fputs(
        "  report   FILE.html: a page about the run, from its traces; of the Python package tierckpt[report] alone\n"
        "\n"
        "  --config FILE  the job's configuration (or TIERCKPT_CONFIG; default: that of the one agent known on this "
        "node;\n"
        "                 config and doctor use the defaults if there is none)\n"
        "  --config-json JSON  keys that override the file's, or all of them\n"
        "  --job NAME     the job, if several have agents here\n"
        "  --node NAME    the node, if several have agents here\n"
        "  --json         print one JSON object\n"
        "  --step N, --keep N, --dry-run, --wait, --set KEY=VALUE, --markdown, --force, --network: see the\n"
        "                 commands\n"
        "  --metrics-textfile FILE  verify and export: progress and result as metrics for node_exporter; a name with "
        ".prom\n"
        "                 at its end\n"
        "  --metrics      print these metrics\n"
        "  --help, --version\n"
        "\n"
        "export, of the newest published version or of --step N:\n"
        "  --version-dir DIR   export the version in this directory; needs no configuration\n"
        "  --memory            export the newest version in the agents' memory, which is published first\n"
        "  --shard-size BYTES  the size of one file: 5GiB by default, 0 for a single file\n"
        "  --dtype KIND        keep (default), float32, bfloat16, float16 or float64\n"
        "  --model-files DIR   copy config.json, the tokenizer's and other files from there\n"
        "  --include PATTERN   export the tensors that match, instead of all weights of the model;\n"
        "                      --exclude PATTERN: not these. Each may be given several times\n"
        "  --names NAME        give them the names of a model family: megatron-llama, megatron-gpt2, or the path of a\n"
        "                      file, with a slash\n"
        "  --strip-prefix TEXT, --add-prefix TEXT   change the names, in this order\n"
        "\n"
        "tune:\n"
        "  --why               how that was computed, and what other intervals and numbers of copies would cost\n"
        "  --node-mtbf HOURS, --process-mtbf HOURS   the mean time between failures of one node, and of its programs\n"
        "  --several-mtbf HOURS, --all-mtbf HOURS    of a node together with another one, and of all nodes at once\n"
        "\n"
        "Exit status: 0 the answer is good, 1 it is not, 2 wrong usage.\n",
        to);
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

struct arguments {
    bool given[128]; /* by an option's letter */
    struct which which;
};

static bool add_pattern(const char **patterns, uint32_t *count)
{
    if (*count == CLI_PATTERNS_MAX) {
        return false;
    }
    patterns[(*count)++] = optarg;
    return true;
}

static int not_a_number(const char *option)
{
    fprintf(stderr, "tierckpt: %s takes a whole number, not %s\n", option, optarg);
    return 3;
}

static int take_hours(const char *option, uint64_t *hours)
{
    return number(optarg, hours) && *hours > 0 ? 0 : not_a_number(option);
}

static int take_tune(struct cli_tune *tune, int option)
{
    switch (option) {
    case 'n':
        return take_hours("--node-mtbf", &tune->node_hours);
    case 'p':
        return take_hours("--process-mtbf", &tune->process_hours);
    case 'g':
        return take_hours("--several-mtbf", &tune->several_hours);
    case 'l':
        return take_hours("--all-mtbf", &tune->all_hours);
    default:
        return 3;
    }
}

/* Handles an option of export. */
static int take_export(struct cli_export *export, int option)
{
    switch (option) {
    case 'V':
        export->version_dir = optarg;
        return 0;
    case 'M':
        export->from_memory = true;
        return 0;
    case 'b':
        export->shard_size = optarg;
        return 0;
    case 't':
        export->dtype = optarg;
        return 0;
    case 'F':
        export->model_files = optarg;
        return 0;
    case 'I':
        return add_pattern(export->include, &export->include_count) ? 0 : 3;
    case 'X':
        return add_pattern(export->exclude, &export->exclude_count) ? 0 : 3;
    case 'P':
        export->strip_prefix = optarg;
        return 0;
    case 'A':
        export->add_prefix = optarg;
        return 0;
    case 'a':
        export->names = optarg;
        return 0;
    default:
        return 3;
    }
}

/* What an option without a value switches on; NULL for other options. */
static bool *switched_on_by(struct cli *cli, int option)
{
    switch (option) {
    case 'j':
        return &cli->json;
    case 'd':
        return &cli->dry_run;
    case 'f':
        return &cli->force;
    case 'm':
        return &cli->markdown;
    case 'R':
        return &cli->network;
    case 'w':
        return &cli->wait;
    case 'y':
        return &cli->tune.why;
    default:
        return NULL;
    }
}

/* One option; 0 to go on, else the exit status + 1. */
static int take(struct cli *cli, struct arguments *a, int option)
{
    bool *flag = switched_on_by(cli, option);
    uint64_t n;
    if (flag != NULL) {
        *flag = true;
        return 0;
    }
    switch (option) {
    case 'c':
        a->which.config = optarg;
        return 0;
    case 'C':
        a->which.config_json = optarg;
        return 0;
    case 'J':
        a->which.job = optarg;
        return 0;
    case 'N':
        a->which.node = optarg;
        return 0;
    case 'S':
        cli->set = optarg;
        return 0;
    case 's':
        return number(optarg, &cli->step) ? 0 : not_a_number("--step");
    case 'k':
        cli->keep_given = number(optarg, &n) && n >= 1 && n <= UINT32_MAX;
        cli->keep = (uint32_t)n;
        return cli->keep_given ? 0 : not_a_number("--keep");
    case 'T':
        cli->metrics_textfile = optarg;
        return 0;
    case 'x':
        operation_text_list(stdout);
        return 1;
    case 'v':
        puts("tierckpt " TCK_VERSION);
        return 1;
    case 'h':
        usage(stdout);
        return 1;
    case 'n':
    case 'p':
    case 'g':
    case 'l':
        return take_tune(&cli->tune, option);
    default:
        return take_export(&cli->export, option);
    }
}

static int parse(int argc, char **argv, struct cli *cli, struct arguments *a)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"config-json", required_argument, NULL, 'C'},
                                            {"job", required_argument, NULL, 'J'},
                                            {"node", required_argument, NULL, 'N'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"dry-run", no_argument, NULL, 'd'},
                                            {"wait", no_argument, NULL, 'w'},
                                            {"set", required_argument, NULL, 'S'},
                                            {"markdown", no_argument, NULL, 'm'},
                                            {"force", no_argument, NULL, 'f'},
                                            {"network", no_argument, NULL, 'R'},
                                            {"step", required_argument, NULL, 's'},
                                            {"keep", required_argument, NULL, 'k'},
                                            {"metrics-textfile", required_argument, NULL, 'T'},
                                            {"metrics", no_argument, NULL, 'x'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version-dir", required_argument, NULL, 'V'},
                                            {"memory", no_argument, NULL, 'M'},
                                            {"shard-size", required_argument, NULL, 'b'},
                                            {"dtype", required_argument, NULL, 't'},
                                            {"model-files", required_argument, NULL, 'F'},
                                            {"include", required_argument, NULL, 'I'},
                                            {"exclude", required_argument, NULL, 'X'},
                                            {"strip-prefix", required_argument, NULL, 'P'},
                                            {"add-prefix", required_argument, NULL, 'A'},
                                            {"names", required_argument, NULL, 'a'},
                                            {"node-mtbf", required_argument, NULL, 'n'},
                                            {"process-mtbf", required_argument, NULL, 'p'},
                                            {"several-mtbf", required_argument, NULL, 'g'},
                                            {"all-mtbf", required_argument, NULL, 'l'},
                                            {"why", no_argument, NULL, 'y'},
                                            {NULL, 0, NULL, 0}};
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        int end = take(cli, a, c);
        a->given[c & 127] = true;
        if (end) {
            return end;
        }
    }
    return 0;
}

/* Refuses options and arguments that a command does not know, since ignoring them would mislead the user. */
static bool fits(size_t command, const struct cli *cli, const struct arguments *a)
{
    static const struct {
        char letter;
        const char *name;
    } special[] = {{'s', "--step"},     {'k', "--keep"},       {'d', "--dry-run"},      {'w', "--wait"},
                   {'S', "--set"},      {'m', "--markdown"},   {'f', "--force"},        {'V', "--version-dir"},
                   {'M', "--memory"},   {'b', "--shard-size"}, {'t', "--dtype"},        {'F', "--model-files"},
                   {'I', "--include"},  {'X', "--exclude"},    {'P', "--strip-prefix"}, {'A', "--add-prefix"},
                   {'a', "--names"},    {'n', "--node-mtbf"},  {'p', "--process-mtbf"}, {'g', "--several-mtbf"},
                   {'l', "--all-mtbf"}, {'y', "--why"},        {'R', "--network"},      {'T', "--metrics-textfile"}};
    for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++) {
        if (a->given[(unsigned char)special[i].letter] &&
            strchr(commands[command].options, special[i].letter) == NULL) {
            fprintf(stderr, "tierckpt: %s does not take %s\n", commands[command].name, special[i].name);
            return false;
        }
    }
    if (cli->argc > commands[command].arguments) {
        fprintf(stderr, "tierckpt: %s does not take %s\n", commands[command].name,
                cli->argv[commands[command].arguments]);
        return false;
    }
    return true;
}

static int run(size_t command, struct cli *cli, const struct arguments *a)
{
    struct error err;
    bool needs_job = cli->export.version_dir == NULL && !cli->markdown; /* these two need no job */
    bool or_defaults = commands[command].defaults && cli->set == NULL;
    if (log_open("-", LOG_WARN, "tierckpt", &err) != TCK_OK ||
        (needs_job && which_config(&a->which, or_defaults, &cli->config, &cli->configured, &err) != TCK_OK)) {
        return cli_fail(cli, &err);
    }
    return commands[command].run(cli);
}

static const char *command_name(size_t i)
{
    return i < sizeof(commands) / sizeof(*commands) ? commands[i].name : NULL;
}

static int no_command(const char *name)
{
    const char *nearest = typo_nearest(name, command_name);
    if (name[0] == '\0') {
        usage(stderr);
    } else if (strcmp(name, "report") == 0) {
        fprintf(stderr, "tierckpt: report is a part of the Python package: pip install 'tierckpt[report]', and use the "
                        "command tierckpt that comes with it\n");
    } else if (nearest != NULL) {
        fprintf(stderr, "tierckpt: no command is called %s; did you mean %s?\n", name, nearest);
    } else {
        fprintf(stderr, "tierckpt: no command is called %s; tierckpt --help lists them\n", name);
    }
    return 2;
}

int main(int argc, char **argv)
{
    struct cli cli = {.step = TCK_NEWEST};
    struct arguments a = {0};
    int end = parse(argc, argv, &cli, &a);
    if (end == 3) {
        fprintf(stderr, "tierckpt: see tierckpt --help\n");
    }
    if (end) {
        return end - 1;
    }
    const char *name = optind < argc ? argv[optind] : "";
    cli.argc = argc - optind - 1;
    cli.argv = argv + optind + 1;
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            cli.command = commands[i].name;
            if (!fits(i, &cli, &a)) {
                return 2;
            }
            return run(i, &cli, &a);
        }
    }
    return no_command(name);
}
