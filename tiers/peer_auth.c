/* SPDX-License-Identifier: Apache-2.0
 * The steps of the handshake between agents. */
#include "tiers/peer_auth.h"

#include <inttypes.h>
#include <string.h>

/* Takes the peer's name. */
#define SECRET_DIFFERS                                                                                       \
    "node %s does not have this job's secret: check that save_dir is the same directory on both nodes, and " \
    "token_file the same file"

#define ACCEPTOR_LABEL  "tierckpt peer acceptor"
#define CONNECTOR_LABEL "tierckpt peer connector"

static tck_status_t transcript_add(struct auth *auth, const void *data, size_t len)
{
    if (len > sizeof(auth->transcript) - auth->transcript_len) {
        return TCK_ERR_PROTO;
    }
    memcpy(auth->transcript + auth->transcript_len, data, len);
    auth->transcript_len += len;
    return TCK_OK;
}

static void make_mac(const struct auth *auth, const char *label, uint8_t out[MAC_BYTES])
{
    secret_mac(auth->self->secret, label, auth->transcript, auth->transcript_len, out);
}

static bool mac_is_right(const struct auth *auth, const char *label, const uint8_t mac[MAC_BYTES])
{
    uint8_t wanted[MAC_BYTES];

    make_mac(auth, label, wanted);
    return mac_equal(wanted, mac);
}

tck_status_t auth_connect(struct auth *auth, const struct auth_self *self, enum wire_role role, uint64_t session,
                          struct writer *out)
{
    struct wire_hello hello = {.format = PEER_FORMAT, .role = role, .session = session, .node = *self->node};
    size_t start = out->len;
    tck_status_t status = random_bytes(hello.nonce, sizeof(hello.nonce));

    if (status != TCK_OK) {
        return status;
    }
    memcpy(hello.job, self->job, strnlen(self->job, sizeof(hello.job) - 1));
    wire_hello_encode(&hello, out);
    if (out->failed) {
        return TCK_ERR_NOMEM;
    }
    *auth = (struct auth){.self = self, .awaits = AUTH_CHALLENGE, .role = role, .session = session};
    return transcript_add(auth, out->data + start, out->len - start);
}

void auth_accept(struct auth *auth, const struct auth_self *self)
{
    *auth = (struct auth){.self = self, .awaits = AUTH_HELLO};
}

static tck_status_t refuse_mismatch(const struct auth *auth, const struct wire_hello_head *hello, struct writer *out,
                                    struct error *err)
{
    struct wire_mismatch ours = {.format = PEER_FORMAT};

    memcpy(ours.job, auth->self->job, strnlen(auth->self->job, sizeof(ours.job) - 1));
    wire_mismatch_encode(&ours, out);
    return error_set(err, TCK_ERR_DENIED, "an agent of job %s, format %u, connected to job %s, format %u", hello->job,
                     hello->format, ours.job, PEER_FORMAT);
}

static tck_status_t answer_hello(struct auth *auth, struct writer *out, struct error *err)
{
    struct wire_challenge challenge = {.node = *auth->self->node};
    tck_status_t status = random_bytes(challenge.nonce, sizeof(challenge.nonce));

    if (status != TCK_OK) {
        return error_set(err, status, "no random bytes for a handshake");
    }
    wire_challenge_encode(&challenge, out);
    if (out->failed || transcript_add(auth, out->data, out->len - MAC_BYTES) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a handshake");
    }
    make_mac(auth, ACCEPTOR_LABEL, out->data + out->len - MAC_BYTES);
    auth->awaits = AUTH_PROOF;
    return TCK_OK;
}

static tck_status_t take_hello(struct auth *auth, const void *data, size_t len, struct writer *out, struct error *err)
{
    struct reader r = reader_of(data, len);
    struct wire_hello_head head = read_wire_hello_head(&r);
    struct wire_hello hello;

    if (!r.failed && head.format != PEER_FORMAT) {
        return refuse_mismatch(auth, &head, out, err);
    }
    if (wire_hello_decode(data, len, &hello) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "a connection did not begin with HELLO");
    }
    if (strcmp(hello.job, auth->self->job) != 0) {
        return refuse_mismatch(auth, &head, out, err);
    }
    if (hello.node.agent_id == auth->self->node->agent_id) {
        return error_set(err, TCK_ERR_DENIED, "node %s connected with the id of this agent, %016" PRIx64,
                         hello.node.name, hello.node.agent_id);
    }
    if (transcript_add(auth, data, len) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "HELLO of %zu bytes", len);
    }
    auth->role = hello.role;
    auth->session = hello.session;
    auth->node = hello.node;
    return answer_hello(auth, out, err);
}

static tck_status_t take_mismatch(const struct auth *auth, const void *data, size_t len, struct error *err)
{
    struct wire_mismatch theirs;

    if (wire_mismatch_decode(data, len, &theirs) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed MISMATCH");
    }
    return error_set(err, TCK_ERR_DENIED, "the agent belongs to job %s, format %u, and this one to job %s, format %u",
                     theirs.job, theirs.format, auth->self->job, PEER_FORMAT);
}

static tck_status_t take_challenge(struct auth *auth, const void *data, size_t len, struct writer *out,
                                   struct error *err)
{
    struct wire_challenge challenge;
    struct wire_proof proof;

    if (wire_kind_of(data, len) == WIRE_MISMATCH) {
        return take_mismatch(auth, data, len, err);
    }
    if (wire_challenge_decode(data, len, &challenge) != TCK_OK ||
        transcript_add(auth, data, len - MAC_BYTES) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed CHALLENGE");
    }
    if (!mac_is_right(auth, ACCEPTOR_LABEL, challenge.mac)) {
        return error_set(err, TCK_ERR_DENIED, SECRET_DIFFERS, challenge.node.name);
    }
    make_mac(auth, CONNECTOR_LABEL, proof.mac);
    wire_proof_encode(&proof, out);
    auth->node = challenge.node;
    auth->awaits = AUTH_WELCOME;
    return TCK_OK;
}

static tck_status_t take_proof(struct auth *auth, const void *data, size_t len, struct writer *out, struct error *err)
{
    struct wire_proof proof;

    if (wire_proof_decode(data, len, &proof) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed PROOF");
    }
    if (!mac_is_right(auth, CONNECTOR_LABEL, proof.mac)) {
        return error_set(err, TCK_ERR_DENIED, SECRET_DIFFERS, auth->node.name);
    }
    wire_welcome_encode(out);
    auth->awaits = AUTH_DONE;
    return TCK_OK;
}

static tck_status_t handle_welcome(struct auth *auth, const void *data, size_t len, struct error *err)
{
    if (wire_welcome_decode(data, len) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed WELCOME");
    }
    auth->awaits = AUTH_DONE;
    return TCK_OK;
}

static tck_status_t take(struct auth *auth, const void *data, size_t len, struct writer *out, struct error *err)
{
    switch (auth->awaits) {
    case AUTH_HELLO:
        return take_hello(auth, data, len, out, err);
    case AUTH_CHALLENGE:
        return take_challenge(auth, data, len, out, err);
    case AUTH_PROOF:
        return take_proof(auth, data, len, out, err);
    case AUTH_WELCOME:
        return handle_welcome(auth, data, len, err);
    case AUTH_DONE:
    case AUTH_FAILED:
        break;
    }
    return error_set(err, TCK_ERR_PROTO, "a message after the end of the handshake");
}

tck_status_t auth_take(struct auth *auth, const void *data, size_t len, struct writer *out, struct error *err)
{
    tck_status_t status = take(auth, data, len, out, err);

    if (status == TCK_OK && out->failed) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for a handshake");
    }
    if (status != TCK_OK) {
        auth->awaits = AUTH_FAILED;
    }
    return status;
}
