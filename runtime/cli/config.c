/* SPDX-License-Identifier: Apache-2.0
 * tierckpt config: every key with its default, the value in force and its meaning; changes one while the job runs. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 5000

/* ---- changing ------------------------------------------------------------------------------------------------ */

static int change(const struct cli *cli)
{
    char key[CONFIG_NAME];
    const char *equals = strchr(cli->set, '=');
    if (equals == NULL || (size_t)(equals - cli->set) >= sizeof(key)) {
        fprintf(stderr, "tierckpt: --set needs KEY=VALUE, not %s\n", cli->set);
        return 2;
    }
    snprintf(key, sizeof(key), "%.*s", (int)(equals - cli->set), cli->set);
    json_t *request = json_object();
    json_add_str(request, "key", key);
    json_add_str(request, "value", equals + 1);
    json_t *answer = cli_ask(cli, "set", request);
    if (answer == NULL) {
        return 1;
    }
    if (!cli_json(cli, answer)) {
        printf("%s is set to %s until the agents of the job end; to keep it, change the configuration file, too\n", key,
               equals + 1);
    }
    json_free(answer);
    return 0;
}

/* ---- the page ------------------------------------------------------------------------------------------------ */

static void print_escaped(const char *text)
{
    for (; *text; text++) {
        fputs(*text == '<' ? "&lt;" : (char[]){*text, '\0'}, stdout);
    }
}

static const char PAGE_HEAD[] =
    "# Configuration\n\n"
    "The configuration is one JSON object, the same on all nodes: a file or, in Python, also a dict. `save_dir`\n"
    "is the only key that is required:\n\n"
    "```json\n"
    "{\n"
    "  \"job\": \"my-training\",\n"
    "  \"save_dir\": \"/shared/checkpoints\",\n"
    "  \"save_mem_interval\": 10,\n"
    "  \"save_storage_interval\": \"10m\",\n"
    "  \"max_ckpt_num\": 3,\n"
    "  \"net_device\": \"eth0\"\n"
    "}\n"
    "```\n\n"
    "Relative paths start at the directory of the file; those in a dict, in `overrides` and in the environment\n"
    "start at the working directory. `~/` is the user's own home. URLs and variables are refused. A mistake in\n"
    "the configuration produces [one line](errors.md) that names it.\n\n"
    "`tierckpt config` shows the values in force. Keys with a star can be changed while the job runs: `tierckpt\n"
    "config --set save_mem_interval=20`. (This page is the output of `tierckpt config --markdown`.)\n\n";

static int print_markdown(void)
{
    struct config_help field;
    fputs(PAGE_HEAD, stdout);
    for (size_t i = 0; config_field(i, &field); i++) {
        printf("- `%s`%s (%s", field.name, field.changeable ? "\\*" : "", field.takes);
        if (field.default_text[0]) {
            printf("; default `%s`", field.default_text);
        }
        fputs("): ", stdout);
        print_escaped(field.help);
        putchar('\n');
    }
    return 0;
}

/* ---- the values in force ------------------------------------------------------------------------------------- */

static void value_text(const json_t *value, char *out, size_t cap)
{
    char *text = value != NULL ? json_print(value, false) : NULL;
    snprintf(out, cap, "%s", text != NULL ? text : "");
    free(text);
}

/* Also prints the value in the file if it differs from the agent's. */
static void print_field(const json_t *config, const json_t *file, const struct config_help *field)
{
    char value[2 * CONFIG_PATH], said[2 * CONFIG_PATH];
    value_text(json_get(config, field->name), value, sizeof(value));
    value_text(json_get(file, field->name), said, sizeof(said));
    printf("%s = %s\n", field->name, value);
    if (strcmp(value, said) != 0) {
        printf("    THE FILE SAYS %s: the running agent has the value above\n", said);
    }
    printf("    %s%s\n    takes %s%s%s\n", field->help, field->changeable ? " [can be changed while the job runs]" : "",
           field->takes, field->default_text[0] ? "; default " : "", field->default_text);
}

/* The configuration of the running agent; NULL if there is no answer. */
static json_t *ask_agent(const struct cli *cli)
{
    json_t *answer = NULL;
    struct error err;
    if (!cli->configured || control_ask(&cli->config, "config", NULL, ANSWER_MS, &answer, &err) != TCK_OK) {
        return NULL;
    }
    return answer;
}

static int show(const struct cli *cli, const json_t *file)
{
    json_t *answer = ask_agent(cli);
    const json_t *running = json_get(answer, "config");
    const json_t *in_force = running != NULL ? running : file;
    if (!cli_json(cli, in_force)) {
        if (!cli->configured) {
            printf("no configuration was given (--config FILE), and no agent runs here: these are the defaults\n\n");
        }
        struct config_help field;
        for (size_t i = 0; config_field(i, &field); i++) {
            print_field(in_force, file, &field);
        }
    }
    json_free(answer);
    return 0;
}

int cli_config(const struct cli *cli)
{
    if (cli->set != NULL) {
        return change(cli);
    }
    if (cli->markdown) {
        return print_markdown();
    }
    json_t *file = config_json(&cli->config);
    struct error err;
    if (file == NULL) {
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
        return cli_fail(cli, &err);
    }
    int status = show(cli, file);
    json_free(file);
    return status;
}
