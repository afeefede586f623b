/* SPDX-License-Identifier: Apache-2.0
 * The messages between agents: what their tables cannot express. */
#include "agent/state/wire.h"

#include <string.h>

/* ---- parts --------------------------------------------------------------------------------------------------- */

SCHEMA_PART(wire_root, WIRE_ROOT_FIELDS, schema_any)

/* Coded by hand, because the number of its CRCs is derived from its size, while a table's arrays carry their own count.
 */
enum { manifest_file_LEAST_BYTES = 16 + 8 + 16 };

static void write_manifest_file(struct writer *w, const struct manifest_file *file)
{
    write_hash128(w, file->shard);
    write_u64(w, file->bytes);
    write_hash128(w, file->root);
    for (uint32_t i = 0; i < chunk_count(file->bytes); i++) {
        write_u32(w, file->crcs[i]);
    }
}

/* Allocates nothing for a count that exceeds the rest of the message; the reader fails. */
static struct manifest_file read_manifest_file(struct reader *r)
{
    struct manifest_file file = {.shard = read_hash128(r)};
    tck_status_t ignored;
    file.bytes = read_u64(r);
    file.root = read_hash128(r);
    manifest_file_name(file.shard, file.name);
    uint64_t chunks = file.bytes / CHUNK_BYTES + (file.bytes % CHUNK_BYTES != 0);
    file.crcs = chunks > UINT32_MAX
                    ? schema_no_array(r)
                    : schema_array(r, (uint32_t)chunks, sizeof(*file.crcs), sizeof(*file.crcs), &ignored);
    for (uint32_t i = 0; !r->failed && i < chunks; i++) {
        file.crcs[i] = read_u32(r);
    }
    return file;
}

static void free_manifest_file(struct manifest_file *file)
{
    free(file->crcs);
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

static bool beat_is_valid(const struct wire_beat *m)
{
    return m->on_node_loss <= ON_NODE_LOSS_END_TRAINERS;
}

static bool fetch_is_valid(const struct wire_fetch *m)
{
    return m->source < SOURCE_KINDS;
}

#define WIRE_CODEC(name, FIELDS, is_valid) SCHEMA_CODEC(wire_##name, FIELDS, is_valid)
WIRE_MESSAGES(WIRE_CODEC)
