/* SPDX-License-Identifier: Apache-2.0
 * Encoders and decoders of the messages between agents. */
#include "agent/wire.h"

#include <stdlib.h>
#include <string.h>

#define WIRE_SHARDS_MAX (1u << 20)
#define WIRE_KNOWN_MAX  65536u

/* An array of count elements of at least wire_bytes each, or NULL (count beyond max, or more than can be left). */
static void *array_for(struct reader *r, uint32_t count, uint32_t max, size_t wire_bytes, size_t element)
{
    if (r->failed || count > max || (uint64_t)count * wire_bytes > reader_left(r)) {
        r->failed = true;
        return NULL;
    }
    void *array = calloc(count ? count : 1, element);
    if (!array) {
        r->failed = true;
    }
    return array;
}

static void write_node(struct writer *w, const struct node_info *n)
{
    write_str(w, n->name);
    write_str(w, n->domain);
    write_str(w, n->address);
    write_u64(w, n->agent_id);
}

static void read_node(struct reader *r, struct node_info *n)
{
    read_str(r, n->name, sizeof n->name);
    read_str(r, n->domain, sizeof n->domain);
    read_str(r, n->address, sizeof n->address);
    n->agent_id = read_u64(r);
}

void wire_beat_encode(const struct wire_beat *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u8(w, m->from_coordinator);
    write_u8(w, m->decision.term != 0);
    if (m->decision.term != 0) {
        decision_encode(&m->decision, w);
    }
    write_u64(w, m->mem_steps);
    write_u64(w, m->storage_steps);
    write_u64(w, m->from_step);
    write_u64(w, m->mem_target);
    write_u64(w, m->storage_target);
    write_u8(w, m->on_node_loss);
    write_trouble(w, &m->storage_trouble);
}

tck_status_t wire_beat_decode(const void *data, size_t len, struct wire_beat *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->from_coordinator = read_bool(&r);
    if (read_bool(&r)) {
        out->decision = decision_decode(&r);
    }
    out->mem_steps = read_u64(&r);
    out->storage_steps = read_u64(&r);
    out->from_step = read_u64(&r);
    out->mem_target = read_u64(&r);
    out->storage_target = read_u64(&r);
    out->on_node_loss = read_u8(&r);
    out->storage_trouble = read_trouble(&r);
    return out->on_node_loss <= ON_NODE_LOSS_END_TRAINERS ? reader_status(&r) : TCK_ERR_PROTO;
}

void wire_note_encode(const struct wire_note *m, struct writer *w)
{
    write_u64(w, m->term);
}

tck_status_t wire_note_decode(const void *data, size_t len, struct wire_note *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    return reader_status(&r);
}

static void write_roots(struct writer *w, const struct wire_root *roots, uint32_t count)
{
    write_u32(w, count);
    for (uint32_t i = 0; i < count; i++) {
        write_u32(w, roots[i].shard);
        write_hash128(w, roots[i].root);
    }
}

static struct wire_root *read_roots(struct reader *r, uint32_t *count_out)
{
    *count_out = read_u32(r);
    struct wire_root *roots = array_for(r, *count_out, WIRE_SHARDS_MAX, 20, sizeof *roots);
    for (uint32_t i = 0; !r->failed && i < *count_out; i++) {
        roots[i].shard = read_u32(r);
        roots[i].root = read_hash128(r);
    }
    return roots;
}

void wire_ready_encode(const struct wire_ready *m, struct writer *w)
{
    write_u64(w, m->term);
    write_version(w, m->version);
    write_hash128(w, m->layout);
    write_u8(w, m->to_storage);
    write_roots(w, m->roots, m->count);
}

tck_status_t wire_ready_decode(const void *data, size_t len, struct wire_ready *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->version = read_version(&r);
    out->layout = read_hash128(&r);
    out->to_storage = read_bool(&r);
    out->roots = read_roots(&r, &out->count);
    if (!reader_done(&r)) {
        free(out->roots);
        return TCK_ERR_PROTO;
    }
    return TCK_OK;
}

void wire_roots_encode(const struct wire_roots *m, struct writer *w)
{
    write_u64(w, m->term);
    write_version(w, m->version);
    write_roots(w, m->roots, m->count);
}

tck_status_t wire_roots_decode(const void *data, size_t len, struct wire_roots *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->version = read_version(&r);
    out->roots = read_roots(&r, &out->count);
    if (!reader_done(&r)) {
        free(out->roots);
        return TCK_ERR_PROTO;
    }
    return TCK_OK;
}

void wire_refused_encode(const struct wire_refused *m, struct writer *w)
{
    write_u64(w, m->term);
    write_version(w, m->version);
    write_u8(w, m->refusal);
}

tck_status_t wire_refused_decode(const void *data, size_t len, struct wire_refused *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    out->version = read_version(&r);
    out->refusal = read_u8(&r);
    return reader_status(&r);
}

void wire_drained_encode(const struct wire_drained *m, struct writer *w)
{
    write_u64(w, m->term);
    write_version(w, m->version);
    write_u64(w, m->attempt);
    write_u8(w, m->ok);
    write_str(w, m->why);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct manifest_file *f = &m->files[i];
        write_hash128(w, f->shard);
        write_u64(w, f->bytes);
        write_hash128(w, f->root);
        for (uint32_t c = 0; c < chunk_count(f->bytes); c++) {
            write_u32(w, f->crcs[c]);
        }
    }
}

static void read_drained_file(struct reader *r, struct manifest_file *f)
{
    f->shard = read_hash128(r);
    f->bytes = read_u64(r);
    f->root = read_hash128(r);
    manifest_file_name(f->shard, f->name);
    uint64_t chunks = f->bytes / CHUNK_BYTES + (f->bytes % CHUNK_BYTES != 0);
    if (r->failed || chunks > reader_left(r) / 4) {
        r->failed = true;
        return;
    }
    f->crcs = array_for(r, (uint32_t)chunks, UINT32_MAX, 4, sizeof *f->crcs);
    for (uint32_t c = 0; !r->failed && c < chunks; c++) {
        f->crcs[c] = read_u32(r);
    }
}

tck_status_t wire_drained_decode(const void *data, size_t len, struct wire_drained *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->version = read_version(&r);
    out->attempt = read_u64(&r);
    out->ok = read_bool(&r);
    read_str(&r, out->why, sizeof out->why);
    out->count = read_u32(&r);
    out->files = array_for(&r, out->count, WIRE_SHARDS_MAX, 40, sizeof *out->files);
    if (!out->files) {
        out->count = 0;
    }
    for (uint32_t i = 0; !r.failed && i < out->count; i++) {
        read_drained_file(&r, &out->files[i]);
    }
    if (!reader_done(&r)) {
        wire_drained_free(out);
        return TCK_ERR_PROTO;
    }
    return TCK_OK;
}

void wire_drained_free(struct wire_drained *m)
{
    for (uint32_t i = 0; m->files && i < m->count; i++) {
        free(m->files[i].crcs);
    }
    free(m->files);
    m->files = NULL;
    m->count = 0;
}

void wire_ask_encode(const struct wire_ask *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u64(w, m->asking);
    write_u64(w, m->step);
    write_u8(w, m->dry);
}

tck_status_t wire_ask_decode(const void *data, size_t len, struct wire_ask *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    out->asking = read_u64(&r);
    out->step = read_u64(&r);
    out->dry = read_bool(&r);
    return reader_status(&r);
}

void wire_inventory_encode(const struct wire_inventory *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u64(w, m->asking);
    write_u32(w, m->known_count);
    for (uint32_t i = 0; i < m->known_count; i++) {
        write_node(w, &m->known[i].node);
        write_u64(w, m->known[i].term);
    }
    write_u64(w, m->inventory_len);
    write_bytes(w, m->inventory, m->inventory_len);
}

tck_status_t wire_inventory_decode(const void *data, size_t len, struct wire_inventory *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->asking = read_u64(&r);
    out->known_count = read_u32(&r);
    out->known = array_for(&r, out->known_count, WIRE_KNOWN_MAX, 22, sizeof *out->known);
    for (uint32_t i = 0; !r.failed && i < out->known_count; i++) {
        read_node(&r, &out->known[i].node);
        out->known[i].term = read_u64(&r);
    }
    out->inventory_len = read_u64(&r);
    out->inventory = read_bytes(&r, out->inventory_len);
    if (!reader_done(&r)) {
        free(out->known);
        return TCK_ERR_PROTO;
    }
    return TCK_OK;
}

void wire_fetch_encode(const struct wire_fetch *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u32(w, m->shard);
    write_version(w, m->version);
    write_version(w, m->floor);
    write_version(w, m->fallback);
    write_u8(w, m->source);
    write_node(w, &m->from);
}

tck_status_t wire_fetch_decode(const void *data, size_t len, struct wire_fetch *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->shard = read_u32(&r);
    out->version = read_version(&r);
    out->floor = read_version(&r);
    out->fallback = read_version(&r);
    out->source = read_u8(&r);
    read_node(&r, &out->from);
    return out->source < SOURCE_KINDS ? reader_status(&r) : TCK_ERR_PROTO;
}

void wire_fetched_encode(const struct wire_fetched *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u32(w, m->shard);
    write_version(w, m->version);
    write_u32(w, (uint32_t)m->outcome);
    write_str(w, m->reason);
}

tck_status_t wire_fetched_decode(const void *data, size_t len, struct wire_fetched *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    out->shard = read_u32(&r);
    out->version = read_version(&r);
    out->outcome = (int32_t)read_u32(&r);
    read_str(&r, out->reason, sizeof out->reason);
    return reader_status(&r);
}

void wire_readable_encode(const struct wire_readable *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u64(w, m->asked_step);
    write_u32(w, (uint32_t)m->outcome);
    write_version(w, m->version);
    write_u64(w, m->newest_step);
    write_str(w, m->reason);
    write_str(w, m->passed_over);
}

tck_status_t wire_readable_decode(const void *data, size_t len, struct wire_readable *out)
{
    struct reader r = reader_of(data, len);
    memset(out, 0, sizeof *out);
    out->term = read_u64(&r);
    out->asked_step = read_u64(&r);
    out->outcome = (int32_t)read_u32(&r);
    out->version = read_version(&r);
    out->newest_step = read_u64(&r);
    read_str(&r, out->reason, sizeof out->reason);
    read_str(&r, out->passed_over, sizeof out->passed_over);
    return reader_status(&r);
}

void wire_change_encode(const struct wire_change *m, struct writer *w)
{
    write_u64(w, m->term);
    write_str(w, m->key);
    write_str(w, m->value);
}

tck_status_t wire_change_decode(const void *data, size_t len, struct wire_change *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    read_str(&r, out->key, sizeof out->key);
    read_str(&r, out->value, sizeof out->value);
    return reader_status(&r);
}

void wire_holder_ask_encode(const struct wire_holder_ask *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u64(w, m->asking);
    write_str(w, m->run_id);
}

tck_status_t wire_holder_ask_decode(const void *data, size_t len, struct wire_holder_ask *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    out->asking = read_u64(&r);
    read_str(&r, out->run_id, sizeof out->run_id);
    return reader_status(&r);
}

void wire_holder_encode(const struct wire_holder *m, struct writer *w)
{
    write_u64(w, m->term);
    write_u64(w, m->asking);
    write_u8(w, m->held);
    write_u32(w, m->rank);
    write_u32(w, m->world_size);
    write_u32(w, m->pid);
}

tck_status_t wire_holder_decode(const void *data, size_t len, struct wire_holder *out)
{
    struct reader r = reader_of(data, len);
    out->term = read_u64(&r);
    out->asking = read_u64(&r);
    out->held = read_bool(&r);
    out->rank = read_u32(&r);
    out->world_size = read_u32(&r);
    out->pid = read_u32(&r);
    return reader_status(&r);
}
