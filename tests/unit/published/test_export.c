/* SPDX-License-Identifier: Apache-2.0
 * An export writes whole tensors of the model, and what cannot be made whole is an error that leaves nothing behind. */
#include "base/layout.h"
#include "made_version.h"
#include "tierckpt.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS 2

static char root[64];

/* A tensor of one or two dimensions whose elements are what `value` says. */
struct piece {
    const char *key;
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global[2], offset[2], shape[2];
    float first; /* of the elements, each one more than the one before */
};

struct rank {
    struct piece pieces[4];
    const char *map; /* NULL: none */
};

static char *below(const char *name)
{
    static char paths[4][200];
    static unsigned next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof(paths[0]), "%s/%s", root, name);
    return out;
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/tck-export-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(mkdir(below("job"), 0755), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(export, .init = setup, .fini = teardown);

static void add_piece(struct layout *layout, const struct piece *piece)
{
    tck_record_t record = {
        .struct_size = sizeof(record), .key = piece->key, .dtype = piece->dtype, .ndim = piece->ndim};
    uint64_t count = piece->shape[0] * (piece->ndim == 2 ? piece->shape[1] : 1);
    float *data = malloc(count * sizeof(*data));
    memcpy(record.global_shape, piece->global, sizeof(piece->global));
    memcpy(record.offset, piece->offset, sizeof(piece->offset));
    memcpy(record.local_shape, piece->shape, sizeof(piece->shape));
    for (uint64_t i = 0; i < count; i++) {
        data[i] = piece->first + (float)i;
    }
    record.addr = data;
    cr_assert_eq(layout_add(layout, &record, NULL, NULL), TCK_OK);
}

static void add_map(struct layout *layout, uint32_t number, const char *map)
{
    char key[64];
    uint64_t size = htole64(strlen(map));
    snprintf(key, sizeof(key), "rank%u/tierckpt.export", number);
    cr_assert_eq(layout_add_blob(layout, key, 2000, NULL, NULL, NULL), TCK_OK);
    struct record *blob = &layout->records[layout->record_count - 1];
    memcpy(blob->addr, &size, sizeof(size));
    memcpy((char *)blob->addr + sizeof(size), map, strlen(map));
}

static void publish(const struct rank ranks[RANKS])
{
    struct made_version made;
    made_version_begin(&made, below("job"), (struct version){2, 7}, RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        struct layout layout = {0};
        for (size_t i = 0; i < 4 && ranks[r].pieces[i].key != NULL; i++) {
            add_piece(&layout, &ranks[r].pieces[i]);
        }
        if (ranks[r].map != NULL) {
            add_map(&layout, r, ranks[r].map);
        }
        cr_assert_eq(layout_build(&layout, r, RANKS, NULL), TCK_OK);
        made_version_add(&made, &layout);
        for (uint32_t i = 0; i < layout.record_count; i++) {
            if (!layout.records[i].blob) {
                free(layout.records[i].addr);
            }
        }
        layout_free(&layout);
    }
    made_version_end(&made);
}

static tck_status_t export_with(tck_export_params_t params)
{
    char json[300];
    tck_published_open_params_t source = {.struct_size = sizeof(source), .config_json = json, .step = TCK_NEWEST};
    snprintf(json, sizeof(json), "{\"job\":\"job\",\"save_dir\":\"%s\"}", root);
    params.struct_size = sizeof(params);
    params.source = &source;
    params.directory = below("out");
    return tck_export(&params, NULL);
}

static tck_status_t export(void)
{
    return export_with((tck_export_params_t){0});
}

/* The header of the exported file as text; *data_out are its tensors. */
static const char *exported(const uint8_t **data_out)
{
    static char file[4000];
    uint64_t len = 0;
    int fd = open(below("out/model.safetensors"), O_RDONLY);
    cr_assert_geq(fd, 0);
    cr_assert_gt(read(fd, file, sizeof(file) - 1), 8);
    close(fd);
    memcpy(&len, file, sizeof(len));
    *data_out = (const uint8_t *)file + 8 + len;
    file[8 + len - 1] = '\0'; /* padding */
    return file + 8;
}

static float number(const uint8_t *data, size_t index)
{
    float value;
    memcpy(&value, data + 4 * index, sizeof(value));
    return value;
}

static void must_refuse(tck_status_t status, const char *text)
{
    struct stat st;
    cr_assert_eq(export(), status, "%s", tck_published_errmsg(NULL));
    cr_assert_not_null(strstr(tck_published_errmsg(NULL), text), "%s", tck_published_errmsg(NULL));
    cr_assert_neq(stat(below("out"), &st), 0);
}

#define W(name, parts) "{\"name\":\"" name "\",\"dtype\":\"F32\",\"shape\":[4,3],\"parts\":[" parts "]}"
#define MAP(tensors)   "{\"format\":1,\"tensors\":[" tensors "]}"
#define SAME           "{\"format\":1,\"same\":0}"

/* ---- with maps --------------------------------------------------------------------------------------------------- */

Test(export, flat_pieces_become_a_tensor_of_its_true_shape)
{
    publish((const struct rank[]){
        {{{"w", TCK_F32, 1, {12}, {0}, {7}, 0}, {"master.w", TCK_F32, 1, {12}, {0}, {7}, 50}},
         MAP(W("w", "{\"key\":\"w\"}"))},
        {{{"w", TCK_F32, 1, {12}, {7}, {5}, 7}, {"master.w", TCK_F32, 1, {12}, {7}, {5}, 57}}, SAME}});
    const uint8_t *data = NULL;
    cr_assert_eq(export(), TCK_OK, "%s", tck_published_errmsg(NULL));
    const char *header = exported(&data);
    cr_assert_not_null(strstr(header, "\"w\":{\"dtype\":\"F32\",\"shape\":[4,3]"), "%s", header);
    cr_assert_null(strstr(header, "master"));
    for (size_t i = 0; i < 12; i++) {
        cr_assert_eq((int)number(data, i), (int)i);
    }
}

/* Columns on two ranks; each of them has two parts of the rows, as a gated layer has. */
Test(export, boxes_of_two_ranks_are_put_where_they_belong)
{
    publish((const struct rank[]){
        {{{"tp0.w", TCK_F32, 2, {4, 1}, {0}, {4, 1}, 0}},
         MAP(W("w", "{\"key\":\"tp0.w\",\"held\":[4,1],\"from\":[0,0],\"size\":[2,1],\"at\":[2,0]},"
                    "{\"key\":\"tp0.w\",\"held\":[4,1],\"from\":[2,0],\"size\":[2,1],\"at\":[0,0]}"))},
        {{{"tp1.w", TCK_F32, 1, {8}, {0}, {8}, 10}}, /* flat */
         MAP(W("w", "{\"key\":\"tp1.w\",\"held\":[4,2],\"from\":[0,0],\"size\":[4,2],\"at\":[0,1]}"))}});
    const float wanted[] = {2, 10, 11, 3, 12, 13, 0, 14, 15, 1, 16, 17};
    const uint8_t *data = NULL;
    cr_assert_eq(export(), TCK_OK, "%s", tck_published_errmsg(NULL));
    exported(&data);
    for (size_t i = 0; i < 12; i++) {
        cr_assert_eq((int)number(data, i), (int)wanted[i], "%zu", i);
    }
}

Test(export, pieces_in_fp32_are_rounded_to_the_dtype_of_the_model)
{
    const char *map =
        "{\"format\":1,\"tensors\":[{\"name\":\"w\",\"dtype\":\"BF16\",\"shape\":[2],\"parts\":[{\"key\":\"p\"}]}]}";
    publish((const struct rank[]){{{{"p", TCK_F32, 1, {2}, {0}, {2}, 1.001f}}, map}, {{{0}}, SAME}});
    const uint8_t *data = NULL;
    cr_assert_eq(export(), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_not_null(strstr(exported(&data), "\"dtype\":\"BF16\""));
    const uint8_t one_and_two[] = {0x80, 0x3f, 0x00, 0x40};
    cr_assert_arr_eq(data, one_and_two, sizeof(one_and_two));
    nftw(below("out"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
    cr_assert_eq(export_with((tck_export_params_t){.convert = 1, .dtype = TCK_F32}), TCK_OK);
    exported(&data);
    cr_assert(number(data, 0) > 1.0009f); /* not rounded in between */
}

Test(export, equal_copies_are_one_tensor_and_different_ones_are_refused)
{
    const char *maps[] = {MAP(W("w", "{\"key\":\"tp0.w\"}")), MAP(W("w", "{\"key\":\"tp1.w\"}"))};
    publish((const struct rank[]){{{{"tp0.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 0}}, maps[0]},
                                  {{{"tp1.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 0}}, maps[1]}});
    cr_assert_eq(export(), TCK_OK, "%s", tck_published_errmsg(NULL));
    nftw(below("out"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
    nftw(below("job"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
    cr_assert_eq(mkdir(below("job"), 0755), 0);
    publish((const struct rank[]){{{{"tp0.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 0}}, maps[0]},
                                  {{{"tp1.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 1}}, maps[1]}});
    must_refuse(TCK_ERR_LAYOUT, "\"w\": rank 0 and rank 1 hold the same part of it with different values");
}

Test(export, hole_in_a_tensor_is_refused)
{
    publish((const struct rank[]){
        {{{"w", TCK_F32, 2, {2, 3}, {0}, {2, 3}, 0}},
         MAP(W("w", "{\"key\":\"w\",\"held\":[2,3],\"from\":[0,0],\"size\":[2,3],\"at\":[0,0]}"))},
        {{{0}}, SAME}});
    must_refuse(TCK_ERR_LAYOUT, "\"w\": 6 elements from 2 of dimension 0 on are a part of no rank");
}

Test(export, hole_in_what_was_saved_is_refused)
{
    publish(
        (const struct rank[]){{{{"w", TCK_F32, 1, {12}, {0}, {7}, 0}}, MAP(W("w", "{\"key\":\"w\"}"))}, {{{0}}, SAME}});
    must_refuse(TCK_ERR_LAYOUT, "\"w\": \"w\": 5 elements from 7 of dimension 0 on were saved by no rank");
}

Test(export, key_that_is_not_there_is_refused_with_its_rank)
{
    publish((const struct rank[]){{{{"w", TCK_F32, 1, {12}, {0}, {12}, 0}}, MAP("")},
                                  {{{0}}, MAP(W("w", "{\"key\":\"tp1.w\"}"))}});
    must_refuse(TCK_ERR_LAYOUT, "\"w\": rank 1 declares that a part of it is in \"tp1.w\", and no rank has saved that");
}

Test(export, rank_without_a_map_is_refused)
{
    publish((const struct rank[]){{{{"w", TCK_F32, 1, {12}, {0}, {12}, 0}}, MAP(W("w", "{\"key\":\"w\"}"))},
                                  {{{"v", TCK_F32, 1, {1}, {0}, {1}, 0}}, NULL}});
    must_refuse(TCK_ERR_LAYOUT, "rank 1 has saved no export map");
}

Test(export, what_a_framework_cannot_describe_is_refused_unless_it_is_excluded)
{
    publish((const struct rank[]){{{{"w", TCK_F32, 1, {12}, {0}, {12}, 0}},
                                   MAP(W("w", "{\"key\":\"w\"}") ",{\"name\":\"odd\",\"refused\":\"it is a riddle\"}")},
                                  {{{0}}, SAME}});
    must_refuse(TCK_ERR_UNSUPPORTED, "\"odd\" of rank 0 cannot be made whole: it is a riddle");
    const char *const odd[] = {"odd", NULL};
    cr_assert_eq(export_with((tck_export_params_t){.exclude = odd}), TCK_OK, "%s", tck_published_errmsg(NULL));
}

Test(export, malformed_maps_are_refused)
{
    static const char *const maps[] = {"",
                                       "[]",
                                       "{}",
                                       "{\"format\":2,\"tensors\":[]}",
                                       "{\"format\":1}",
                                       "{\"format\":1,\"same\":0}",
                                       MAP("{\"name\":\"w\"}"),
                                       MAP(W("w", "")),
                                       MAP(W("w", "{}")),
                                       MAP("7"),
                                       MAP(W("w", "{\"key\":\"w\",\"at\":[1,0]}")),
                                       MAP(W("w", "{\"key\":\"w\",\"from\":[0,1]}")),
                                       MAP(W("w", "{\"key\":\"w\",\"held\":[18446744073709551615,3]}")),
                                       MAP(W("w", "{\"key\":\"w\",\"held\":[12]}"))};
    for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
        publish((const struct rank[]){{{{"w", TCK_F32, 1, {12}, {0}, {12}, 0}}, maps[i]}, {{{0}}, SAME}});
        must_refuse(TCK_ERR_PROTO, "the export map of rank 0");
        nftw(below("job"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
        cr_assert_eq(mkdir(below("job"), 0755), 0);
    }
}

/* ---- without maps ------------------------------------------------------------------------------------------------ */

Test(export, masters_and_moments_are_no_weights)
{
    publish((const struct rank[]){{{{"w", TCK_F32, 1, {3}, {0}, {3}, 0},
                                    {"master.w", TCK_F32, 1, {3}, {0}, {3}, 0},
                                    {"optimizer.w.exp_avg", TCK_F32, 1, {3}, {0}, {3}, 0}},
                                   NULL},
                                  {{{0}}, NULL}});
    const uint8_t *data = NULL;
    cr_assert_eq(export(), TCK_OK, "%s", tck_published_errmsg(NULL));
    const char *header = exported(&data);
    cr_assert_null(strstr(header, "master"));
    cr_assert_null(strstr(header, "optimizer"));
}

Test(export, what_may_be_optimizer_state_is_not_guessed)
{
    static const char *const keys[] = {"optimizer.tp0.w.fp32_param", "optim.param_groups.w.step",
                                       "app.opt.state.w.exp_avg"};
    const char *const w[] = {"w", NULL};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        publish((const struct rank[]){
            {{{"w", TCK_F32, 1, {3}, {0}, {3}, 0}, {keys[i], TCK_F32, 1, {3}, {0}, {3}, 0}}, NULL}, {{{0}}, NULL}});
        must_refuse(TCK_ERR_UNSUPPORTED, "may be the state of an optimizer or a weight");
        cr_assert_not_null(strstr(tck_published_errmsg(NULL), keys[i]));
        const char *const other[] = {keys[i], NULL};
        cr_assert_eq(export_with((tck_export_params_t){.exclude = other}), TCK_OK, "%s", tck_published_errmsg(NULL));
        nftw(below("out"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
        cr_assert_eq(export_with((tck_export_params_t){.include = w}), TCK_OK, "%s", tck_published_errmsg(NULL));
        nftw(below("out"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
        nftw(below("job"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
        cr_assert_eq(mkdir(below("job"), 0755), 0);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void write_names(const char *text)
{
    int fd = open(below("names.json"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

Test(export, rules_cut_and_transpose)
{
    publish((const struct rank[]){{{{"a.3.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 0}}, NULL}, {{{0}}, NULL}});
    write_names("{\"format\":1,\"rules\":[{\"from\":\"a.{n}.w\",\"split\":\"halves\",\"transpose\":true,"
                "\"to\":[\"b.{n}\",\"c.{n}\"]}]}");
    const float wanted[] = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};
    const uint8_t *data = NULL;
    cr_assert_eq(export_with((tck_export_params_t){.names = below("names.json")}), TCK_OK, "%s",
                 tck_published_errmsg(NULL));
    const char *header = exported(&data);
    cr_assert_not_null(strstr(header, "\"b.3\":{\"dtype\":\"F32\",\"shape\":[3,2]"), "%s", header);
    for (size_t i = 0; i < 12; i++) {
        cr_assert_eq((int)number(data, i), (int)wanted[i], "%zu", i);
    }
}

Test(export, name_that_no_rule_fits_is_an_error_before_anything_is_written)
{
    struct stat st;
    publish((const struct rank[]){{{{"a.3.w", TCK_F32, 2, {4, 3}, {0}, {4, 3}, 0}}, NULL}, {{{0}}, NULL}});
    write_names("{\"format\":1,\"rules\":[]}");
    cr_assert_eq(export_with((tck_export_params_t){.names = below("names.json")}), TCK_ERR_NOENT);
    cr_assert_not_null(strstr(tck_published_errmsg(NULL), "no rule of the mapping fits \"a.3.w\""));
    cr_assert_neq(stat(below("out"), &st), 0);
    cr_assert_eq(export_with((tck_export_params_t){.names = "nothing-of-this-name"}), TCK_ERR_NOENT);
    cr_assert_not_null(strstr(tck_published_errmsg(NULL), "no mapping \"nothing-of-this-name\" is installed"));
}
