/* SPDX-License-Identifier: Apache-2.0
 * The command: one function per subcommand. Each prints for people, or one JSON object with --json, and returns the
 * exit status: 0 if the answer is good, 1 if it is not, 2 for wrong usage. */
#ifndef TCK_CLI_CLI_H
#define TCK_CLI_CLI_H

#include "base/control.h"
#include "base/log.h"
#include "base/version.h"

#include <stdio.h>

#define CLI_PATTERNS_MAX 64

/* The options of `tierckpt export`. */
struct cli_export {
    const char *version_dir, *shard_size, *dtype, *model_files, *strip_prefix, *add_prefix, *names;
    const char *include[CLI_PATTERNS_MAX + 1], *exclude[CLI_PATTERNS_MAX + 1]; /* NULL at the end */
    uint32_t include_count, exclude_count;
    bool from_memory;
};

/* The options of `tierckpt tune`; 0: not given. */
struct cli_tune {
    uint64_t process_hours, node_hours, several_hours, all_hours;
    bool why;
};

struct cli {
    struct cli_tune tune;
    struct cli_export export;
    struct config config;
    bool configured; /* config is that of a job; otherwise it has the defaults */
    bool json;
    bool dry_run;
    bool wait;
    bool markdown;
    bool force;
    bool network;
    uint32_t keep;
    bool keep_given;
    uint64_t step; /* TCK_NEWEST: none given */
    const char *set;
    const char *metrics_textfile; /* NULL: none */
    const char *command;
    int argc; /* arguments after the subcommand's name */
    char **argv;
};

int cli_status(const struct cli *cli);
int cli_ls(const struct cli *cli);
int cli_show(const struct cli *cli);
int cli_plan(const struct cli *cli);
int cli_verify(const struct cli *cli);
int cli_drain(const struct cli *cli);
int cli_prune(const struct cli *cli);
int cli_forget(const struct cli *cli);
int cli_config(const struct cli *cli);
int cli_stop(const struct cli *cli);
int cli_doctor(const struct cli *cli);
int cli_export(const struct cli *cli);
int cli_tune(const struct cli *cli);
int cli_top(const struct cli *cli);

/* The answer to the request "status", as text. */
void cli_write_status(FILE *to, const json_t *answer);

/* Prints the error (as JSON with --json) and returns 1. */
int cli_fail(const struct cli *cli, const struct error *err);
/* With --json, prints the object and returns true; otherwise returns false. */
bool cli_json(const struct cli *cli, const json_t *json);

/* Sends the request, which it frees, to the agent. Returns a successful answer, or NULL after it has printed the error.
 */
json_t *cli_ask(const struct cli *cli, const char *op, json_t *request);

/* text.c */
void text_bytes(uint64_t bytes, char *out, size_t cap);          /* "1.5 GiB" */
void text_time(uint64_t wall_ms, char *out, size_t cap);         /* "2026-03-01 12:00:00", local; "-" if 0 */
void text_version(const json_t *version, char *out, size_t cap); /* "3.120", "-" if none */
const char *text_of(const json_t *object, const char *key);      /* "" if missing */
uint64_t number_of(const json_t *object, const char *key);       /* 0 if missing */
double real_of(const json_t *object, const char *key);           /* 0 if missing */
bool flag_of(const json_t *object, const char *key);
bool text_first_line(const char *path, char *out, size_t cap); /* of a file; false and "" if it has none */

#endif
