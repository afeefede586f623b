/* SPDX-License-Identifier: Apache-2.0
 * Any text as a configuration: it is refused with a text, or what it makes prints and reads back to the same. */
#include "base/config.h"
#include "fuzz.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void check_round_trip(const struct config *config)
{
    struct config back;
    struct error err = {0};
    json_t *json = config_json(config);
    char *text = json_print(json, true);
    MUST_HOLD(text != NULL);
    MUST_HOLD(config_load(NULL, text, &back, &err) == TCK_OK);
    MUST_HOLD(memcmp(config, &back, sizeof(back)) == 0);
    free(text);
    json_free(json);
}

static void check_error(const struct error *err)
{
    MUST_HOLD(err->code == TCK_ERR_CONFIG && err->text[0] != '\0');
    for (const char *c = err->text; *c != '\0'; c++) {
        MUST_HOLD(!iscntrl((unsigned char)*c));
    }
}

static void try_change(struct config *config, const char *text)
{
    static const char *const keys[] = {"save_mem_interval", "max_ckpt_num", "on_node_loss"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        struct error err = {0};
        if (config_change(config, keys[i], text, &err) == TCK_OK) {
            check_round_trip(config);
        } else {
            check_error(&err);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct error err = {0};
    char *text = malloc(size + 1);
    MUST_HOLD(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (config_load(NULL, text, &config, &err) == TCK_OK) {
        check_round_trip(&config);
    } else {
        check_error(&err);
    }
    if (config_load(NULL, "{\"save_dir\":\"/s\"}", &config, &err) == TCK_OK) {
        try_change(&config, text);
    }
    free(text);
    return 0;
}
