/* SPDX-License-Identifier: Apache-2.0
 * Requests to the agent, and output: for people, or as one JSON object. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

int cli_fail(const struct cli *cli, const struct error *err)
{
    if (cli->json) {
        json_t *json = json_object();
        json_add_bool(json, "ok", false);
        json_add_str(json, "status", status_text(err->code));
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
    puts(text != NULL ? text : "{\"ok\":false,\"error\":\"out of memory\"}");
    free(text);
    return true;
}

json_t *cli_ask(const struct cli *cli, const char *op, json_t *request)
{
    json_t *answer = NULL;
    struct error err;
    if (control_ask(&cli->config, op, request, CONTROL_MS, &answer, &err) != TCK_OK) {
        (void)cli_fail(cli, &err);
        return NULL;
    }
    if (!flag_of(answer, "ok")) {
        (void)error_set(&err, TCK_ERR_INVAL, "%s", text_of(answer, "error"));
        (void)cli_fail(cli, &err);
        json_free(answer);
        return NULL;
    }
    return answer;
}
