/* SPDX-License-Identifier: Apache-2.0
 * Keys and values of the catalog. */
#include "recovery/catalog_codec.h"

#include <string.h>

#define VALUE_FORMAT 1

const char *catalog_state_name(enum catalog_state state)
{
    switch (state) {
    case CATALOG_OPEN:
        return "open";
    case CATALOG_PROTECTED:
        return "protected";
    case CATALOG_COMMITTED:
        return "committed";
    case CATALOG_PUBLISHED:
        return "published";
    case CATALOG_ABORTED:
        return "aborted";
    }
    return "unknown";
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static void key_add_u64(struct catalog_key *key, uint64_t value)
{
    for (int shift = 56; shift >= 0; shift -= 8) {
        key->bytes[key->len++] = (uint8_t)(value >> shift);
    }
}

static struct catalog_key key_of_version(enum catalog_kind kind, struct version version)
{
    struct catalog_key key = catalog_kind_key(kind);
    key_add_u64(&key, version.term);
    key_add_u64(&key, version.step);
    return key;
}

struct catalog_key catalog_kind_key(enum catalog_kind kind)
{
    return (struct catalog_key){.len = 1, .bytes = {(uint8_t)kind}};
}

struct catalog_key catalog_version_key(struct version version)
{
    return key_of_version(CATALOG_KIND_VERSION, version);
}

struct catalog_key catalog_shards_key(struct version version)
{
    return key_of_version(CATALOG_KIND_SHARD, version);
}

struct catalog_key catalog_shard_key(struct version version, struct hash128 shard)
{
    struct catalog_key key = catalog_shards_key(version);
    key_add_u64(&key, shard.hi);
    key_add_u64(&key, shard.lo);
    return key;
}

struct catalog_key catalog_node_key(const char *name)
{
    struct catalog_key key = catalog_kind_key(CATALOG_KIND_NODE);
    size_t len = strnlen(name, CONFIG_NAME);
    memcpy(key.bytes + key.len, name, len);
    key.len += len;
    return key;
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static bool version_is_valid(const struct catalog_version *m)
{
    return !version_none(m->version);
}

static bool shard_is_valid(const struct catalog_shard *m)
{
    return !version_none(m->version);
}

SCHEMA_PART(catalog_version, CATALOG_VERSION_FIELDS, version_is_valid)
SCHEMA_PART(catalog_shard, CATALOG_SHARD_FIELDS, shard_is_valid)

/* A value is its format, then the row. */
#define CATALOG_VALUE(name, row)                                                        \
    void catalog_##name##_encode(const struct row *m, struct writer *w)                 \
    {                                                                                   \
        write_u8(w, VALUE_FORMAT);                                                      \
        write_##row(w, m);                                                              \
    }                                                                                   \
    tck_status_t catalog_##name##_decode(const void *data, size_t len, struct row *out) \
    {                                                                                   \
        struct reader r = reader_of(data, len);                                         \
        r.failed = read_u8(&r) != VALUE_FORMAT || r.failed;                             \
        struct row m = read_##row(&r);                                                  \
        if (!reader_done(&r)) {                                                         \
            return TCK_ERR_CORRUPT;                                                     \
        }                                                                               \
        *out = m;                                                                       \
        return TCK_OK;                                                                  \
    }
CATALOG_VALUE(version, catalog_version)
CATALOG_VALUE(shard, catalog_shard)
CATALOG_VALUE(node, known_node)
