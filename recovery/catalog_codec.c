/* SPDX-License-Identifier: Apache-2.0
 * Keys and values of the catalog. */
#include "recovery/catalog_codec.h"

#include "recovery/inventory.h"

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

static void check_format(struct reader *r)
{
    r->failed = read_u8(r) != VALUE_FORMAT || r->failed;
}

static tck_status_t verdict(const struct reader *r, struct version version)
{
    return reader_done(r) && !version_none(version) ? TCK_OK : TCK_ERR_CORRUPT;
}

void catalog_version_encode(const struct catalog_version *version, struct writer *w)
{
    write_u8(w, VALUE_FORMAT);
    write_version(w, version->version);
    write_u8(w, (uint8_t)version->state);
    write_u64(w, version->wall_ms);
    write_u32(w, version->shard_count);
    write_u64(w, version->bytes);
    write_u32(w, version->drained_shards);
}

tck_status_t catalog_version_decode(const void *data, size_t len, struct catalog_version *out)
{
    struct reader r = reader_of(data, len);
    struct catalog_version v = {0};
    check_format(&r);
    v.version = read_version(&r);
    uint8_t state = read_u8(&r);
    r.failed = r.failed || state > CATALOG_ABORTED;
    v.state = (enum catalog_state)state;
    v.wall_ms = read_u64(&r);
    v.shard_count = read_u32(&r);
    v.bytes = read_u64(&r);
    v.drained_shards = read_u32(&r);
    tck_status_t status = verdict(&r, v.version);
    if (status == TCK_OK) {
        *out = v;
    }
    return status;
}

void catalog_shard_encode(const struct catalog_shard *shard, struct writer *w)
{
    write_u8(w, VALUE_FORMAT);
    write_version(w, shard->version);
    write_hash128(w, shard->shard);
    write_hash128(w, shard->root);
    write_u64(w, shard->bytes);
    write_u8(w, (uint8_t)shard->holder_count);
    for (uint32_t i = 0; i < shard->holder_count; i++) {
        write_str(w, shard->holders[i]);
    }
}

tck_status_t catalog_shard_decode(const void *data, size_t len, struct catalog_shard *out)
{
    struct reader r = reader_of(data, len);
    struct catalog_shard s = {0};
    check_format(&r);
    s.version = read_version(&r);
    s.shard = read_hash128(&r);
    s.root = read_hash128(&r);
    s.bytes = read_u64(&r);
    s.holder_count = read_u8(&r);
    r.failed = r.failed || s.holder_count > CATALOG_HOLDERS_MAX;
    for (uint32_t i = 0; i < s.holder_count && !r.failed; i++) {
        read_str(&r, s.holders[i], sizeof(s.holders[i]));
    }
    tck_status_t status = verdict(&r, s.version);
    if (status == TCK_OK) {
        *out = s;
    }
    return status;
}

void catalog_node_encode(const struct known_node *node, struct writer *w)
{
    write_u8(w, VALUE_FORMAT);
    write_node_info(w, &node->node);
    write_u64(w, node->term);
}

tck_status_t catalog_node_decode(const void *data, size_t len, struct known_node *out)
{
    struct reader r = reader_of(data, len);
    struct known_node n = {0};
    check_format(&r);
    n.node = read_node_info(&r);
    n.term = read_u64(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_CORRUPT;
    }
    *out = n;
    return TCK_OK;
}
