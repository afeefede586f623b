/* SPDX-License-Identifier: Apache-2.0
 * tierckpt: looks at a job's checkpoints and asks its agent for things. */
#include "cli/cli.h"

#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(const struct cli *cli);
    int arguments;       /* at most */
    const char *options; /* beside those that all take, by their letters below */
    const char *help;
} commands[] = {
    {"status", cli_status, 0, "", "the agent, its term, nodes, trainers and newest versions"},
    {"ls", cli_ls, 0, "", "versions in memory (as this node knows them) and on storage"},
    {"show", cli_show, 1, "", "STEP or TERM.STEP: the shards of one version and who holds them"},
    {"plan", cli_plan, 0, "s", "what a recovery would do now, without doing it (--step N: for that step)"},
    {"verify", cli_verify, 1, "", "recompute the digests: memory, published, or both (default)"},
    {"drain", cli_drain, 0, "w", "copy the newest committed version to storage now (--wait: until it is there)"},
    {"prune", cli_prune, 0, "kd", "delete old published versions (--keep N, --dry-run)"},
    {"export", cli_export, 1, "sVMbtFIXPA",
     "DIRECTORY: the model's weights of a published version as a Hugging Face checkpoint"},
    {"config", cli_config, 0, "S",
     "the effective configuration with help (--set KEY=VALUE: change it while the job runs)"},
    {"doctor", cli_doctor, 0, "", "what this machine offers, and launcher settings known to break recovery"},
};

static void usage(FILE *to)
{
    fputs("usage: tierckpt [options] COMMAND\n\n", to);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
    fputs("\n"
          "  --config FILE  the job's configuration (or TIERCKPT_CONFIG; default: of the one agent that runs here)\n"
          "  --job NAME     which job, if several have agents here\n"
          "  --node NAME    which node, if several have agents here\n"
          "  --json         answer as one JSON object\n"
          "  --step N, --keep N, --dry-run, --wait, --set KEY=VALUE: see the commands\n"
          "  --help, --version\n"
          "\n"
          "export, of the newest published version or of --step N:\n"
          "  --version-dir DIR   of the version that lies there; needs no configuration\n"
          "  --memory            of the newest version in the agents' memory, which is published first\n"
          "  --shard-size BYTES  of one file: 5GiB by default, 0 for a single one\n"
          "  --dtype KIND        keep (default), float32, bfloat16, float16 or float64\n"
          "  --model-files DIR   copy config.json, the tokenizer's and other files from there\n"
          "  --include PATTERN   of the keys, instead of all weights of the model; --exclude PATTERN: not these.\n"
          "                      Each may be given several times\n"
          "  --strip-prefix TEXT, --add-prefix TEXT   of the keys, in this order\n"
          "\n"
          "Exit status: 0 the answer is good, 1 it is not, 2 wrong usage.\n",
          to);
}

int cli_fail(const struct cli *cli, const struct error *err)
{
    if (cli->json) {
        json_t *json = json_object();
        json_add_bool(json, "ok", false);
        json_add_str(json, "error", err->text);
        (void)cli_json(cli, json);
        json_free(json);
    } else {
        fprintf(stderr, "tierckpt: %s\n", err->text);
    }
    return 1;
}

bool cli_json(const struct cli *cli, const json_t *json)
{
    if (!cli->json) {
        return false;
    }
    char *text = json_print(json, true);
    puts(text ? text : "{\"ok\":false,\"error\":\"out of memory\"}");
    free(text);
    return true;
}

/* ---- which agent --------------------------------------------------------------------------------------------- */

struct found {
    const char *job, *node; /* wanted; NULL: any */
    char path[3 * CONFIG_PATH];
    uint32_t count;
};

static void look(struct found *found, const char *dir, const char *job)
{
    char path[2 * CONFIG_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, job);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char file[3 * CONFIG_PATH];
        snprintf(file, sizeof file, "%s/%s/config.json", path, e->d_name);
        if (name_is_safe(e->d_name) && (!found->node || strcmp(found->node, e->d_name) == 0) &&
            access(file, R_OK) == 0) {
            found->count++;
            snprintf(found->path, sizeof found->path, "%s", file);
        }
    }
    if (d) {
        closedir(d);
    }
}

/* The configuration that an agent's starter left in the runtime directory, if there is just one that fits. */
static tck_status_t find_config(struct found *found, struct error *err)
{
    struct config defaults;
    tck_status_t status = config_load(NULL, "{\"save_dir\":\"/\"}", &defaults, err);
    DIR *d = status == TCK_OK ? opendir(defaults.runtime_dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (name_is_safe(e->d_name) && (!found->job || strcmp(found->job, e->d_name) == 0)) {
            look(found, defaults.runtime_dir, e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    if (status == TCK_OK && found->count != 1) {
        status = error_set(err, TCK_ERR_NOENT,
                           found->count ? "%u agents are known below %s: say --job and --node, or --config"
                                        : "%u agents are known below %s: say --config FILE",
                           found->count, defaults.runtime_dir);
    }
    return status;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

struct arguments {
    bool given[128]; /* by an option's letter */
    const char *config;
    struct found found;
};

static bool add_pattern(const char **patterns, uint32_t *count)
{
    if (*count == CLI_PATTERNS_MAX) {
        return false;
    }
    patterns[(*count)++] = optarg;
    return true;
}

/* One of export's own. */
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
    default:
        return 3;
    }
}

/* One option; 0 to go on, else the exit status + 1. */
static int take(struct cli *cli, struct arguments *a, int option)
{
    uint64_t n;
    switch (option) {
    case 'c':
        a->config = optarg;
        return 0;
    case 'J':
        a->found.job = optarg;
        return 0;
    case 'N':
        a->found.node = optarg;
        return 0;
    case 'j':
        cli->json = true;
        return 0;
    case 'd':
        cli->dry_run = true;
        return 0;
    case 'w':
        cli->wait = true;
        return 0;
    case 'S':
        cli->set = optarg;
        return 0;
    case 's':
        return number(optarg, &cli->step) ? 0 : 3;
    case 'k':
        cli->keep_given = number(optarg, &n) && n >= 1 && n <= UINT32_MAX;
        cli->keep = (uint32_t)n;
        return cli->keep_given ? 0 : 3;
    case 'v':
        printf("tierckpt %d.%d.%d\n", TCK_VERSION_MAJOR, TCK_VERSION_MINOR, TCK_VERSION_PATCH);
        return 1;
    case 'h':
        usage(stdout);
        return 1;
    default:
        return take_export(&cli->export, option);
    }
}

static int parse(int argc, char **argv, struct cli *cli, struct arguments *a)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"job", required_argument, NULL, 'J'},
                                            {"node", required_argument, NULL, 'N'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"dry-run", no_argument, NULL, 'd'},
                                            {"wait", no_argument, NULL, 'w'},
                                            {"set", required_argument, NULL, 'S'},
                                            {"step", required_argument, NULL, 's'},
                                            {"keep", required_argument, NULL, 'k'},
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

static tck_status_t load(struct cli *cli, struct arguments *a, struct error *err)
{
    const char *file = a->config ? a->config : getenv("TIERCKPT_CONFIG");
    if (cli->export.version_dir) {
        return TCK_OK; /* a directory alone is enough */
    }
    if (!file) {
        tck_status_t status = find_config(&a->found, err);
        if (status != TCK_OK) {
            return status;
        }
        file = a->found.path;
    }
    cli->config_file = file;
    return config_load(file, NULL, &cli->config, err);
}

/* An option or argument that a command does not know is not passed over: it would seem to have been heeded. */
static bool fits(size_t command, const struct cli *cli, const struct arguments *a)
{
    static const struct {
        char letter;
        const char *name;
    } special[] = {{'s', "--step"},         {'k', "--keep"},        {'d', "--dry-run"}, {'w', "--wait"},
                   {'S', "--set"},          {'V', "--version-dir"}, {'M', "--memory"},  {'b', "--shard-size"},
                   {'t', "--dtype"},        {'F', "--model-files"}, {'I', "--include"}, {'X', "--exclude"},
                   {'P', "--strip-prefix"}, {'A', "--add-prefix"}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (a->given[(unsigned char)special[i].letter] && !strchr(commands[command].options, special[i].letter)) {
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

int main(int argc, char **argv)
{
    struct cli cli = {.step = TCK_NEWEST};
    struct arguments a = {0};
    struct error err;
    int end = parse(argc, argv, &cli, &a);
    if (end) {
        if (end == 3) {
            usage(stderr);
        }
        return end - 1;
    }
    const char *name = optind < argc ? argv[optind] : "";
    cli.argc = argc - optind - 1;
    cli.argv = argv + optind + 1;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            if (!fits(i, &cli, &a)) {
                return 2;
            }
            if (log_open("-", LOG_WARN, "tierckpt", &err) != TCK_OK || load(&cli, &a, &err) != TCK_OK) {
                return cli_fail(&cli, &err);
            }
            return commands[i].run(&cli);
        }
    }
    fprintf(stderr, name[0] ? "tierckpt: no command is called %s\n" : "tierckpt: a command is needed%s\n", name);
    usage(stderr);
    return 2;
}
