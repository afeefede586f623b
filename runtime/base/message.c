/* SPDX-License-Identifier: Apache-2.0
 * The payloads between client, command and agent: one encoder and one decoder per message, side by side. */
#include "base/message.h"
#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES  (16 + 8 + 4 + 4 + 1) /* encoded */
#define RESTORED_BYTES (4 + 1 + 16)
#define AGENT_BYTES    (2 + 1 + 8)

/* A count of entries that must follow, entry_bytes each. */
static uint32_t read_count(struct reader *r, size_t entry_bytes)
{
    uint32_t count = read_u32(r);
    if (count > MESSAGE_SHARDS_MAX || count > reader_left(r) / entry_bytes) {
        r->failed = true;
        return 0;
    }
    return count;
}

/* An array of the receiver's, never of size 0. */
static void *new_array(uint32_t count, size_t size)
{
    return calloc(count == 0 ? 1 : count, size);
}

void msg_seq_encode(const struct msg_seq *m, struct writer *w)
{
    write_u32(w, m->seq);
}

tck_status_t msg_seq_decode(const void *payload, size_t len, struct msg_seq *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_seq m = {.seq = read_u32(&r)};
    if (r.failed) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_hello_encode(const struct msg_hello *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u32(w, m->format);
    write_u32(w, m->rank);
    write_u32(w, m->world_size);
    write_u32(w, m->pid);
    write_str(w, m->job);
    write_u8(w, m->returning);
    write_u64(w, m->term);
    write_bytes(w, m->proof, MAC_BYTES);
    write_str(w, m->run_id);
    write_u8(w, m->takeover);
    write_u32(w, m->settings_len);
    write_bytes(w, m->settings, m->settings_len);
}

static bool hello_is_valid(const struct msg_hello *m)
{
    return m->format == MESSAGE_FORMAT && m->world_size <= WORLD_RANKS_MAX && m->rank < m->world_size &&
           name_is_safe(m->job);
}

tck_status_t msg_hello_decode(const void *payload, size_t len, struct msg_hello *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_hello m = {0};
    m.seq = read_u32(&r);
    m.format = read_u32(&r);
    m.rank = read_u32(&r);
    m.world_size = read_u32(&r);
    m.pid = read_u32(&r);
    read_str(&r, m.job, sizeof(m.job));
    m.returning = read_bool(&r);
    m.term = read_u64(&r);
    const void *proof = read_bytes(&r, MAC_BYTES);
    read_str(&r, m.run_id, sizeof(m.run_id));
    m.takeover = read_bool(&r);
    m.settings_len = read_u32(&r);
    m.settings = read_bytes(&r, m.settings_len);
    if (proof == NULL || !reader_done(&r) || !hello_is_valid(&m)) {
        return TCK_ERR_PROTO;
    }
    memcpy(m.proof, proof, MAC_BYTES);
    *out = m;
    return TCK_OK;
}

bool msg_hello_format(const void *payload, size_t len, uint32_t *seq_out, uint32_t *format_out)
{
    struct reader r = reader_of(payload, len);
    uint32_t seq = read_u32(&r);
    uint32_t format = read_u32(&r);
    if (r.failed) {
        return false;
    }
    *seq_out = seq;
    *format_out = format;
    return true;
}

void msg_welcome_encode(const struct msg_welcome *m, struct writer *w)
{
    uint8_t hello[RANK_HELLO_BYTES];
    rank_hello_encode(&m->hello, hello);
    write_u32(w, m->seq);
    write_u32(w, m->format);
    write_bytes(w, hello, sizeof(hello));
}

tck_status_t msg_welcome_decode(const void *payload, size_t len, struct msg_welcome *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_welcome m = {.seq = read_u32(&r)};
    m.format = read_u32(&r);
    const void *hello = read_bytes(&r, RANK_HELLO_BYTES);
    if (hello == NULL || !reader_done(&r) || m.format != MESSAGE_FORMAT) {
        return TCK_ERR_PROTO;
    }
    tck_status_t status = rank_hello_decode(hello, &m.hello);
    if (status == TCK_OK) {
        *out = m;
    }
    return status;
}

void msg_term_encode(const struct msg_term *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->term);
}

tck_status_t msg_term_decode(const void *payload, size_t len, struct msg_term *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_term m = {.seq = read_u32(&r)};
    m.term = read_u64(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_claim_encode(const struct msg_claim *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->at_least);
    write_u64(w, m->after);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        write_str(w, m->agents[i].node);
        write_u64(w, m->agents[i].agent_id);
    }
}

tck_status_t msg_claim_decode(const void *payload, size_t len, struct msg_claim *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_claim m = {.seq = read_u32(&r)};
    m.at_least = read_u64(&r);
    m.after = read_u64(&r);
    m.count = read_u32(&r);
    if (m.count > WORLD_RANKS_MAX || m.count > reader_left(&r) / AGENT_BYTES) {
        return TCK_ERR_PROTO;
    }
    m.agents = new_array(m.count, sizeof(*m.agents));
    if (m.agents == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        read_str(&r, m.agents[i].node, sizeof(m.agents[i].node));
        m.agents[i].agent_id = read_u64(&r);
        r.failed |= !name_is_safe(m.agents[i].node);
    }
    if (!reader_done(&r)) {
        free(m.agents);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_world_encode(const struct msg_world *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u32(w, m->rank);
    world_encode(&m->world, w);
    write_u8(w, m->will_ask);
}

tck_status_t msg_world_decode(const void *payload, size_t len, struct msg_world *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_world m = {.seq = read_u32(&r)};
    m.rank = read_u32(&r);
    tck_status_t status = world_decode(&r, &m.world, NULL);
    if (status != TCK_OK) {
        return status;
    }
    m.will_ask = read_bool(&r);
    if (!reader_done(&r) || m.rank >= m.world.world_size) {
        world_free(&m.world);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

static void write_segment(struct writer *w, const struct msg_segment *segment)
{
    write_hash128(w, segment->shard);
    write_u64(w, segment->slot_stride);
    write_u32(w, segment->slot_count);
    write_u32(w, segment->page_bytes);
    write_u8(w, segment->stored_here);
}

static struct msg_segment read_segment(struct reader *r)
{
    struct msg_segment segment = {.shard = read_hash128(r)};
    segment.slot_stride = read_u64(r);
    segment.slot_count = read_u32(r);
    segment.page_bytes = read_u32(r);
    segment.stored_here = read_bool(r);
    /* The whole data fd must be a size that a file can have. */
    r->failed |= segment.slot_count > MESSAGE_SLOTS_MAX || segment.slot_stride > INT64_MAX / MESSAGE_SLOTS_MAX;
    return segment;
}

void msg_segments_encode(const struct msg_segments *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        write_segment(w, &m->segments[i]);
    }
}

tck_status_t msg_segments_decode(const void *payload, size_t len, struct msg_segments *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_segments m = {.seq = read_u32(&r)};
    m.count = read_count(&r, SEGMENT_BYTES);
    m.segments = new_array(m.count, sizeof(*m.segments));
    if (m.segments == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        m.segments[i] = read_segment(&r);
        r.failed |= i > 0 && hash128_cmp(m.segments[i - 1].shard, m.segments[i].shard) >= 0;
    }
    if (!reader_done(&r)) {
        free(m.segments);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_segment_get_encode(const struct msg_segment_get *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_hash128(w, m->shard);
}

tck_status_t msg_segment_get_decode(const void *payload, size_t len, struct msg_segment_get *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_segment_get m = {.seq = read_u32(&r)};
    m.shard = read_hash128(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_begin_encode(const struct msg_begin *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->step);
    write_u8(w, m->to_storage);
}

tck_status_t msg_begin_decode(const void *payload, size_t len, struct msg_begin *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_begin m = {.seq = read_u32(&r)};
    m.step = read_u64(&r);
    m.to_storage = read_bool(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_grant_encode(const struct msg_grant *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->step);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        write_u32(w, m->slots[i]);
    }
}

tck_status_t msg_grant_decode(const void *payload, size_t len, struct msg_grant *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_grant m = {.seq = read_u32(&r)};
    m.step = read_u64(&r);
    m.count = read_count(&r, sizeof(uint32_t));
    m.slots = new_array(m.count, sizeof(*m.slots));
    if (m.slots == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        m.slots[i] = read_u32(&r);
    }
    if (!reader_done(&r)) {
        free(m.slots);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_roots_encode(const struct msg_roots *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->step);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        write_hash128(w, m->roots[i].shard);
        write_hash128(w, m->roots[i].root);
    }
}

tck_status_t msg_roots_decode(const void *payload, size_t len, struct msg_roots *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_roots m = {.seq = read_u32(&r)};
    m.step = read_u64(&r);
    m.count = read_count(&r, sizeof(*m.roots));
    m.roots = new_array(m.count, sizeof(*m.roots));
    if (m.roots == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        m.roots[i].shard = read_hash128(&r);
        m.roots[i].root = read_hash128(&r);
    }
    if (!reader_done(&r)) {
        free(m.roots);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_step_encode(const struct msg_step *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->step);
}

tck_status_t msg_step_decode(const void *payload, size_t len, struct msg_step *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_step m = {.seq = read_u32(&r)};
    m.step = read_u64(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_restore_encode(const struct msg_restore *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u64(w, m->step);
    write_u8(w, m->may_lack);
    write_str(w, m->failed);
}

tck_status_t msg_restore_decode(const void *payload, size_t len, struct msg_restore *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_restore m = {.seq = read_u32(&r)};
    m.step = read_u64(&r);
    m.may_lack = read_bool(&r);
    read_str(&r, m.failed, sizeof(m.failed));
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_restored_encode(const struct msg_restored *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_version(w, m->version);
    write_u64(w, m->newest_step);
    write_u8(w, m->other_layout);
    write_str(w, m->passed_over);
    write_u32(w, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        write_u32(w, m->shards[i].slot);
        write_u8(w, m->shards[i].source);
        write_hash128(w, m->shards[i].root);
    }
}

tck_status_t msg_restored_decode(const void *payload, size_t len, struct msg_restored *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_restored m = {.seq = read_u32(&r)};
    m.version = read_version(&r);
    m.newest_step = read_u64(&r);
    m.other_layout = read_bool(&r);
    read_str(&r, m.passed_over, sizeof(m.passed_over));
    m.count = read_count(&r, RESTORED_BYTES);
    m.shards = new_array(m.count, sizeof(*m.shards));
    if (m.shards == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        m.shards[i].slot = read_u32(&r);
        m.shards[i].source = read_u8(&r);
        m.shards[i].root = read_hash128(&r);
        r.failed |= m.shards[i].source >= SOURCE_KINDS;
    }
    if (!reader_done(&r)) {
        free(m.shards);
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_version_encode(const struct msg_version *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_version(w, m->version);
}

tck_status_t msg_version_decode(const void *payload, size_t len, struct msg_version *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_version m = {.seq = read_u32(&r)};
    m.version = read_version(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

void msg_detach_encode(const struct msg_detach *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u8(w, m->job_done);
    write_u8(w, m->last_failed);
}

tck_status_t msg_detach_decode(const void *payload, size_t len, struct msg_detach *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_detach m = {.seq = read_u32(&r)};
    m.job_done = read_bool(&r);
    m.last_failed = read_bool(&r);
    if (!reader_done(&r)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

/* Statuses travel as their distance below 0. */
static bool status_of_wire(uint32_t wire, tck_status_t *out)
{
    static const tck_status_t known[] = {
#define TCK_STATUS_KNOWN(name, value, text) TCK_##name,
        TCK_STATUS_MAP(TCK_STATUS_KNOWN)
#undef TCK_STATUS_KNOWN
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i] != TCK_OK && wire == (uint32_t)-known[i]) {
            *out = known[i];
            return true;
        }
    }
    return false;
}

void msg_error_encode(const struct msg_error *m, struct writer *w)
{
    write_u32(w, m->seq);
    write_u32(w, (uint32_t)-m->error.code);
    write_str(w, m->error.text);
}

tck_status_t msg_error_decode(const void *payload, size_t len, struct msg_error *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_error m = {.seq = read_u32(&r)};
    uint32_t code = read_u32(&r);
    read_str(&r, m.error.text, sizeof(m.error.text));
    if (!reader_done(&r) || !status_of_wire(code, &m.error.code)) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}
