/* SPDX-License-Identifier: Apache-2.0
 * The handshake accepts an agent that has the secret, and no agent that repeats, changes or mixes its messages. */
#include "tiers/peer_auth.h"

#include <criterion/criterion.h>
#include <string.h>

static struct secret secret, other_secret;
static struct node_info left_node = {.name = "left", .agent_id = 1};
static struct node_info right_node = {.name = "right", .agent_id = 2};
static struct auth_self left = {.job = "job", .node = &left_node, .secret = &secret};
static struct auth_self right = {.job = "job", .node = &right_node, .secret = &secret};
static struct auth connector, acceptor;
static struct writer hello, challenge, proof, welcome;
static struct error err;

static void set_up(void)
{
    memset(secret.bytes, 1, sizeof(secret.bytes));
    memset(other_secret.bytes, 2, sizeof(other_secret.bytes));
    hello = challenge = proof = welcome = writer_new(0);
}

static void tear_down(void)
{
    writer_free(&hello);
    writer_free(&challenge);
    writer_free(&proof);
    writer_free(&welcome);
}

static void send_hello(void)
{
    cr_assert_eq(auth_connect(&connector, &left, WIRE_CONTROL, 99, &hello), TCK_OK);
    auth_accept(&acceptor, &right);
}

static tck_status_t take(struct auth *auth, const struct writer *in, struct writer *out)
{
    return auth_take(auth, in->data, in->len, out, &err);
}

TestSuite(peer_auth, .init = set_up, .fini = tear_down);

Test(peer_auth, authenticates_both_sides)
{
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    cr_assert_eq(take(&connector, &challenge, &proof), TCK_OK);
    cr_expect_neq(connector.awaits, AUTH_DONE);
    cr_assert_eq(take(&acceptor, &proof, &welcome), TCK_OK);
    cr_expect_eq(acceptor.awaits, AUTH_DONE);
    cr_assert_eq(take(&connector, &welcome, &(struct writer){0}), TCK_OK);
    cr_expect_eq(connector.awaits, AUTH_DONE);
    cr_expect_eq(connector.node.agent_id, 2);
    cr_expect_eq(acceptor.node.agent_id, 1);
    cr_expect_eq(acceptor.session, 99);
    cr_expect_eq(acceptor.role, WIRE_CONTROL);
}

Test(peer_auth, denies_an_acceptor_with_another_secret)
{
    right.secret = &other_secret;
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    cr_expect_eq(take(&connector, &challenge, &proof), TCK_ERR_DENIED);
    cr_expect_eq(proof.len, 0);
    cr_expect_eq(connector.awaits, AUTH_FAILED);
}

Test(peer_auth, denies_a_wrong_proof)
{
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    cr_assert_eq(take(&connector, &challenge, &proof), TCK_OK);
    proof.data[5] ^= 1;
    cr_expect_eq(take(&acceptor, &proof, &welcome), TCK_ERR_DENIED);
    cr_expect_eq(welcome.len, 0);
}

Test(peer_auth, denies_the_acceptors_own_mac_sent_back_to_it)
{
    uint8_t reflected[1 + MAC_BYTES] = {WIRE_PROOF};
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    memcpy(reflected + 1, challenge.data + challenge.len - MAC_BYTES, MAC_BYTES);
    cr_expect_eq(auth_take(&acceptor, reflected, sizeof(reflected), &welcome, &err), TCK_ERR_DENIED);
}

Test(peer_auth, denies_a_handshake_whose_hello_was_changed)
{
    send_hello();
    hello.data[hello.len - 1] ^= 1; /* the nonce */
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    cr_expect_eq(take(&connector, &challenge, &proof), TCK_ERR_DENIED);
}

Test(peer_auth, denies_a_proof_recorded_from_another_handshake)
{
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_OK);
    cr_assert_eq(take(&connector, &challenge, &proof), TCK_OK);
    auth_accept(&acceptor, &right);
    cr_assert_eq(take(&acceptor, &hello, &welcome), TCK_OK);
    cr_expect_eq(take(&acceptor, &proof, &(struct writer){0}), TCK_ERR_DENIED);
}

Test(peer_auth, names_both_jobs_on_both_sides_when_they_differ)
{
    left.job = "one";
    right.job = "two";
    send_hello();
    cr_assert_eq(take(&acceptor, &hello, &challenge), TCK_ERR_DENIED);
    cr_expect(strstr(err.text, "one") != NULL && strstr(err.text, "two") != NULL, "%s", err.text);
    cr_assert_eq(take(&connector, &challenge, &proof), TCK_ERR_DENIED);
    cr_expect(strstr(err.text, "one") != NULL && strstr(err.text, "two") != NULL, "%s", err.text);
}

Test(peer_auth, refuses_this_agents_own_id)
{
    right_node.agent_id = 1;
    send_hello();
    cr_expect_eq(take(&acceptor, &hello, &challenge), TCK_ERR_DENIED);
}

Test(peer_auth, refuses_messages_out_of_turn)
{
    static const uint8_t early[] = {WIRE_WELCOME};
    send_hello();
    cr_expect_eq(auth_take(&acceptor, early, sizeof(early), &challenge, &err), TCK_ERR_PROTO);
    cr_expect_eq(auth_take(&connector, early, sizeof(early), &proof, &err), TCK_ERR_PROTO);
    cr_expect_eq(take(&acceptor, &hello, &challenge), TCK_ERR_PROTO);
}
