/* SPDX-License-Identifier: Apache-2.0
 * Terms in a store of objects: one claimer each, notes that do not undo each other, and answers that are lost, late or
 * come twice. */
#include "objects_rig.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#define RACERS 8
#define CLAIMS 20

static struct persistent *tier;

static void begin(void)
{
    objects_begin();
    tier = objects_tier(true);
}

static void end(void)
{
    persistent_free(tier);
    objects_end();
}

static uint64_t claim(struct persistent *p)
{
    uint64_t term = 0;
    cr_assert_eq(persistent_claim_term(p, 1, &term, &objects_err), TCK_OK, "%s", objects_err.text);
    return term;
}

static void fail(unsigned ops, const char *key, enum memory_fault fault)
{
    const struct memory_failure failure = {.ops = ops, .key = key, .fault = fault, .count = 1};
    memory_store_fail(objects_store, &failure);
}

TestSuite(terms, .init = begin, .fini = end);

/* ---- claims ---------------------------------------------------------------------------------------------------- */

Test(terms, each_claim_is_above_all_earlier_ones)
{
    uint64_t newest = 0;
    cr_assert_eq(claim(tier), 1);
    cr_assert_eq(claim(tier), 2);
    memory_store_set(objects_store, "job/v000000000007.t9/x", "x", 1);
    cr_assert_eq(claim(tier), 10);
    cr_assert_eq(persistent_newest_term(tier, &newest, &objects_err), TCK_OK);
    cr_assert_eq(newest, 10);
    cr_assert_eq(persistent_find_claim(tier, 2, &objects_err), TCK_OK);
    cr_assert_eq(persistent_find_claim(tier, 3, &objects_err), TCK_ERR_NOENT);
}

struct racer {
    pthread_t thread;
    struct persistent *tier;
    uint64_t terms[CLAIMS];
};

static void *race(void *ctx)
{
    struct racer *r = ctx;
    for (int i = 0; i < CLAIMS; i++) {
        struct error err = {0};
        if (persistent_claim_term(r->tier, 1, &r->terms[i], &err) != TCK_OK) {
            r->terms[i] = 0;
        }
    }
    return NULL;
}

Test(terms, of_racing_claimers_each_gets_terms_of_its_own)
{
    struct racer racers[RACERS] = {0};
    bool taken[RACERS * CLAIMS + 1] = {false};
    for (int i = 0; i < RACERS; i++) {
        racers[i].tier = objects_tier(false);
        cr_assert_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        persistent_free(racers[i].tier);
    }
    for (int i = 0; i < RACERS * CLAIMS; i++) {
        uint64_t term = racers[i / CLAIMS].terms[i % CLAIMS];
        cr_assert(term > 0 && term <= RACERS * CLAIMS && !taken[term], "term %d", (int)term);
        taken[term] = true;
    }
}

static void *follow(void *ctx)
{
    struct racer *r = ctx;
    struct error err = {0};
    const struct term_claim wanted = {.at_least = 1, .follows = true, .seen = 1};
    r->terms[0] = persistent_claim(r->tier, &wanted, &r->terms[1], &err) == TCK_OK;
    return NULL;
}

Test(terms, only_one_of_those_that_have_seen_the_same_holders_succeeds)
{
    struct racer racers[RACERS] = {0};
    uint64_t won = 0;
    claim(tier);
    for (int i = 0; i < RACERS; i++) {
        racers[i].tier = objects_tier(false);
        cr_assert_eq(pthread_create(&racers[i].thread, NULL, follow, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        persistent_free(racers[i].tier);
        won += racers[i].terms[0];
    }
    cr_assert_eq(won, 1);
}

static void claim_theirs(void *ctx, enum memory_op op, const char *key)
{
    (void)key;
    if (op == MEMORY_LIST && !*(bool *)ctx) {
        *(bool *)ctx = true;
        memory_store_set(objects_store, "job/term.2", "{}", 2);
    }
}

Test(terms, a_claim_between_two_listings_is_not_followed)
{
    uint64_t term = 0;
    bool claimed = false;
    const struct term_claim wanted = {.at_least = 1, .follows = true, .seen = 1};
    claim(tier);
    memory_store_watch(objects_store, claim_theirs, &claimed);
    cr_assert_eq(persistent_claim(tier, &wanted, &term, &objects_err), TCK_ERR_EXIST, "term %d", (int)term);
    cr_assert(claimed);
}

Test(terms, a_claim_whose_answer_is_lost_leaves_its_term_unused)
{
    uint64_t term = 0;
    fail(MEMORY_CREATE, "term.1", MEMORY_LOST);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &objects_err), TCK_ERR_TIMEDOUT);
    cr_assert(memory_store_has(objects_store, "job/term.1"));
    cr_assert_eq(claim(tier), 2);
}

Test(terms, a_claim_that_arrives_late_takes_no_term_from_anybody)
{
    uint64_t term = 0;
    fail(MEMORY_CREATE, "term.1", MEMORY_LATE);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &objects_err), TCK_ERR_TIMEDOUT);
    struct persistent *other = objects_tier(false);
    cr_assert_eq(claim(other), 1);
    const struct term_holder holder = {.node = "other"};
    cr_assert_eq(persistent_note_holder(other, 1, &holder, &objects_err), TCK_OK);
    memory_store_deliver(objects_store);
    struct term_holders holders = {0};
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(holders.count, 1);
    cr_assert_str_eq(holders.terms[0].holder.node, "other");
    term_holders_free(&holders);
    persistent_free(other);
}

Test(terms, two_claims_without_a_holder_in_the_same_millisecond_differ)
{
    char *one, *two;
    size_t len;
    claim(tier);
    claim(tier);
    cr_assert_eq(objects_store->ops->get(objects_store, NULL, "job/term.1", 1000, &one, &len, &objects_err), TCK_OK);
    cr_assert_eq(objects_store->ops->get(objects_store, NULL, "job/term.2", 1000, &two, &len, &objects_err), TCK_OK);
    const char *a = strstr(one, "\"claim\":"), *b = strstr(two, "\"claim\":");
    cr_assert(a != NULL && b != NULL && strcmp(a, b) != 0, "%s %s", one, two);
    free(one);
    free(two);
}

Test(terms, a_term_that_cannot_be_listed_is_an_error)
{
    uint64_t newest = 0;
    claim(tier);
    fail(MEMORY_LIST, "", MEMORY_DENIED);
    cr_assert_eq(persistent_newest_term(tier, &newest, &objects_err), TCK_ERR_DENIED);
    fail(MEMORY_LIST, "", MEMORY_GONE);
    cr_assert_eq(persistent_newest_term(tier, &newest, &objects_err), TCK_ERR_IO);
    fail(MEMORY_LIST, "", MEMORY_NEVER);
    cr_assert_eq(persistent_claim_term(tier, 1, &newest, &objects_err), TCK_ERR_TIMEDOUT);
}

/* ---- holders and notes ----------------------------------------------------------------------------------------- */

Test(terms, the_agents_that_joined_replace_the_claimer)
{
    struct node_info agents[2] = {{.name = "n0", .domain = "n0", .address = "a:1", .agent_id = 1},
                                  {.name = "n1", .domain = "n1", .address = "b:1", .agent_id = 2}};
    struct term_holder holder = {.node = "n0", .pid = 7, .run_id = "r", .agent_count = 1, .agents = agents};
    struct term_holders holders = {0};
    uint64_t term = 0;
    const struct term_claim wanted = {.at_least = 1, .holder = &holder};
    cr_assert_eq(persistent_claim(tier, &wanted, &term, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_OK);
    cr_assert_eq(holders.newest, 1);
    cr_assert_eq(holders.terms[0].holder.pid, 7);
    cr_assert_not(holders.terms[0].holder.joined);
    term_holders_free(&holders);
    holder.joined = true;
    holder.agent_count = 2;
    cr_assert_eq(persistent_note_holder(tier, term, &holder, &objects_err), TCK_OK);
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_OK);
    cr_assert(holders.terms[0].holder.joined);
    cr_assert_eq(holders.terms[0].holder.agent_count, 2);
    term_holders_free(&holders);
}

Test(terms, a_holder_that_may_not_be_read_is_not_nobody)
{
    struct term_holders holders = {0};
    claim(tier);
    const struct memory_failure refusal = {
        .ops = MEMORY_GET | MEMORY_HEAD, .key = "term.1", .fault = MEMORY_DENIED, .count = 100};
    memory_store_fail(objects_store, &refusal);
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_ERR_DENIED, "%s", objects_err.text);
    memory_store_heal(objects_store);
    cr_assert_eq(persistent_note_holder(tier, 1, &(struct term_holder){.node = "n0"}, &objects_err), TCK_OK);
    fail(MEMORY_GET, "term.1.holder", MEMORY_GONE);
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_ERR_NOENT, "%s", objects_err.text);
}

Test(terms, notes_of_several_writers_are_all_kept)
{
    const struct term_holder holder = {.node = "n0", .joined = true};
    struct commit_notes notes = {0};
    struct version restored = VERSION_NONE;
    uint32_t tries = 0;
    uint64_t term = claim(tier);
    fail(MEMORY_PUT, "term.1.joined", MEMORY_TWICE);
    cr_assert_eq(persistent_note_holder(tier, term, &holder, &objects_err), TCK_OK);
    cr_assert_eq(persistent_note_restore(tier, term, (struct version){1, 5}, &objects_err), TCK_OK);
    memory_store_deliver(objects_store);
    cr_assert_eq(persistent_restore_tries(tier, 2, &restored, &tries, &objects_err), TCK_OK);
    cr_assert(tries == 1 && restored.step == 5);
    cr_assert_eq(persistent_note_commit(tier, term, &objects_err), TCK_OK);
    cr_assert_eq(persistent_commit_notes(tier, 2, &notes, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert(notes.newest == 1 && notes.unsure.code == TCK_OK);
    cr_assert_eq(persistent_restore_tries(tier, 2, &restored, &tries, &objects_err), TCK_OK);
    cr_assert_eq(tries, 0);
}

Test(terms, a_note_that_cannot_be_read_leaves_the_commits_unsure)
{
    struct commit_notes notes = {0};
    claim(tier);
    cr_assert_eq(persistent_note_commit(tier, 1, &objects_err), TCK_OK);
    fail(MEMORY_GET, "term.1.commit", MEMORY_NEVER);
    cr_assert_eq(persistent_commit_notes(tier, 2, &notes, &objects_err), TCK_OK);
    cr_assert(notes.newest == 0 && notes.unsure.code == TCK_ERR_TIMEDOUT, "%s", notes.unsure.text);
}

Test(terms, a_commit_that_is_noted_already_is_not_written_again)
{
    uint64_t term = claim(tier);
    uint32_t before = memory_store_calls(objects_store, MEMORY_PUT);
    cr_assert_eq(persistent_note_commit(tier, term, &objects_err), TCK_OK);
    cr_assert_eq(persistent_note_commit(tier, term, &objects_err), TCK_OK);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_PUT) - before, 1);
}

Test(terms, ended_terms_and_forgotten_ones)
{
    struct commit_notes notes = {0};
    struct version restored = VERSION_NONE;
    uint32_t tries = 0;
    uint64_t term = claim(tier);
    cr_assert_eq(persistent_note_restore(tier, term, (struct version){1, 5}, &objects_err), TCK_OK);
    cr_assert_eq(persistent_note_end(tier, term, &objects_err), TCK_OK);
    cr_assert_eq(persistent_restore_tries(tier, 2, &restored, &tries, &objects_err), TCK_OK);
    cr_assert_eq(tries, 0);
    cr_assert_eq(persistent_note_commit(tier, term, &objects_err), TCK_OK);
    cr_assert_eq(persistent_forget(tier, false, &term, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(term, 2);
    cr_assert_eq(persistent_commit_notes(tier, 3, &notes, &objects_err), TCK_OK);
    cr_assert_eq(notes.newest, 0);
}

/* One listing says what there is to read of all terms. */
Test(terms, what_is_not_noted_is_not_asked_for)
{
    struct commit_notes notes = {0};
    struct term_holders holders = {0};
    struct version restored;
    uint32_t tries;
    for (int i = 0; i < 10; i++) {
        claim(tier);
    }
    cr_assert_eq(persistent_note_restore(tier, 3, (struct version){1, 5}, &objects_err), TCK_OK);
    uint32_t lists = memory_store_calls(objects_store, MEMORY_LIST),
             gets = memory_store_calls(objects_store, MEMORY_GET);
    cr_assert_eq(persistent_restore_tries(tier, 11, &restored, &tries, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert(tries == 1 && restored.step == 5);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_LIST) - lists, 1);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_GET) - gets, 1, "the note of the restore");
    gets = memory_store_calls(objects_store, MEMORY_GET);
    cr_assert_eq(persistent_commit_notes(tier, 11, &notes, &objects_err), TCK_OK);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_GET) - gets, 2, "what is forgotten, and the restore");
    lists = memory_store_calls(objects_store, MEMORY_LIST), gets = memory_store_calls(objects_store, MEMORY_GET);
    cr_assert_eq(persistent_term_holders(tier, &holders, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(holders.count, 10);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_LIST) - lists, 1);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_GET) - gets, 11, "each claim, and the restore");
    term_holders_free(&holders);
}

/* ---- reserved terms -------------------------------------------------------------------------------------------- */

static void reserve(uint64_t by, uint64_t first, uint64_t last)
{
    uint64_t got_first = 0, got_last = 0;
    const struct term_reserve wanted = {.by = by, .first = first, .last = last};
    cr_assert_eq(persistent_reserve(tier, &wanted, &got_first, &got_last, &objects_err), TCK_OK, "%s",
                 objects_err.text);
    cr_assert(got_first == first && got_last == last, "%d to %d", (int)got_first, (int)got_last);
}

Test(terms, a_reserved_term_ends_none_until_it_is_granted)
{
    const struct term_holder holder = {.node = "n1"};
    struct persistent *other = objects_tier(false);
    uint64_t newest = 0;
    claim(tier);
    reserve(1, 2, 3);
    cr_assert_eq(persistent_newest_term(other, &newest, &objects_err), TCK_OK);
    cr_assert_eq(newest, 1);
    cr_assert_eq(persistent_claim_reserved(other, 2, &holder, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(persistent_newest_term(other, &newest, &objects_err), TCK_OK);
    cr_assert_eq(newest, 2);
    cr_assert_eq(claim(other), 4);
    cr_assert_eq(persistent_claim_reserved(other, 3, &holder, &objects_err), TCK_ERR_EXIST);
    persistent_free(other);
}

static void release(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    if (op == MEMORY_PUT && strstr(key, "term.2.holder") != NULL) {
        memory_store_set(objects_store, "job/term.2", NULL, 0);
    }
}

/* Otherwise its holder would be taken for that of the next start that claims the term. */
Test(terms, a_term_that_is_released_while_it_is_granted_is_not_granted)
{
    const struct term_holder holder = {.node = "n1"};
    claim(tier);
    reserve(1, 2, 2);
    memory_store_watch(objects_store, release, NULL);
    cr_assert_eq(persistent_claim_reserved(tier, 2, &holder, &objects_err), TCK_ERR_EXIST, "%s", objects_err.text);
    cr_assert_not(memory_store_has(objects_store, "job/term.2.holder"));
}

Test(terms, a_term_of_which_only_notes_are_left_is_not_claimed_again)
{
    claim(tier);
    memory_store_set(objects_store, "job/term.5.holder", "{}", 2);
    cr_assert_eq(claim(tier), 6);
}

/* A request to delete one could take effect when another start has claimed it. */
Test(terms, released_terms_stay_reserved_and_later_claims_go_past_them)
{
    uint64_t newest = 0;
    claim(tier);
    reserve(1, 2, 4);
    uint32_t before = memory_store_calls(objects_store, MEMORY_REMOVE);
    cr_assert_eq(persistent_unreserve(tier, 2, 4, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_REMOVE), before);
    cr_assert_eq(persistent_newest_term(tier, &newest, &objects_err), TCK_OK);
    cr_assert_eq(newest, 1);
    cr_assert_eq(claim(tier), 5);
}

Test(terms, a_reservation_whose_answer_was_lost_is_found_again)
{
    uint64_t first = 0, last = 0;
    const struct term_reserve more = {.by = 1, .first = 2, .last = 2, .follows = true};
    claim(tier);
    fail(MEMORY_CREATE, "term.2", MEMORY_LOST);
    cr_assert_eq(persistent_reserve(tier, &more, &first, &last, &objects_err), TCK_ERR_TIMEDOUT);
    cr_assert_eq(persistent_reserve(tier, &more, &first, &last, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert(first == 2 && last == 2);
}

/* ---- the start ------------------------------------------------------------------------------------------------- */

Test(terms, a_server_that_ignores_conditions_serves_one_node_only)
{
    cr_assert_eq(persistent_may_be_shared(tier, &objects_err), TCK_OK);
    memory_store_forget_conditions(objects_store);
    struct persistent *other = objects_tier(true);
    cr_assert_eq(persistent_may_be_shared(other, &objects_err), TCK_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(objects_err.text, "If-None-Match"));
    persistent_free(other);
    other = objects_tier(false);
    cr_assert_eq(persistent_may_be_shared(other, &objects_err), TCK_ERR_UNSUPPORTED, "a command may claim a term, too");
    persistent_free(other);
    cr_assert_eq(memory_store_count(objects_store, "job/.tierckpt-"), 0);
}

Test(terms, nothing_is_forgotten_unasked_where_a_start_could_get_the_same_term)
{
    uint64_t term = 0;
    memory_store_forget_conditions(objects_store);
    struct persistent *other = objects_tier(false);
    cr_assert_eq(persistent_forget(other, false, &term, &objects_err), TCK_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(objects_err.text, "--force"), "%s", objects_err.text);
    cr_assert_not(memory_store_has(objects_store, "job/forgotten"));
    cr_assert_eq(persistent_forget(other, true, &term, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert(memory_store_has(objects_store, "job/forgotten"));
    persistent_free(other);
}

static void note_outside(void *ctx, enum memory_op op, const char *key)
{
    if (op != MEMORY_LIST && strncmp(key, "job/", strlen("job/")) != 0) {
        *(bool *)ctx = true;
    }
}

/* So that rights to the job's own keys suffice. */
Test(terms, nothing_outside_the_job_is_read_or_written)
{
    bool outside = false;
    memory_store_watch(objects_store, note_outside, &outside);
    struct persistent *other = objects_tier(true);
    cr_assert_not(outside);
    memory_store_watch(objects_store, NULL, NULL);
    persistent_free(other);
}

Test(terms, a_probe_that_was_left_over_does_not_make_the_job_another_s)
{
    struct persistent *other = NULL;
    struct object_store *store = memory_store_new();
    memory_store_set(store, "job/.tierckpt-probe-0123456789abcdef", "first", 5);
    const struct persistent_setup setup = {.config = &objects_config, .save_store = store};
    cr_assert_eq(persistent_new(&setup, &other, &objects_err), TCK_OK, "%s", objects_err.text);
    persistent_free(other);
}

Test(terms, a_folder_that_is_not_ours_is_refused)
{
    struct persistent *other = NULL;
    struct object_store *store = memory_store_new();
    memory_store_set(store, "job/data.bin", "x", 1);
    const struct persistent_setup setup = {.config = &objects_config, .save_store = store};
    cr_assert_eq(persistent_new(&setup, &other, &objects_err), TCK_ERR_DENIED);
    cr_assert_not_null(strstr(objects_err.text, "not Tierckpt's"), "%s", objects_err.text);
}

Test(terms, a_bucket_that_does_not_answer_is_not_an_empty_one)
{
    struct persistent *other = NULL;
    const struct persistent_setup setup = {
        .config = &objects_config, .save_store = memory_store_client(objects_store), .only_reads = true};
    fail(MEMORY_LIST, "", MEMORY_GONE);
    cr_assert_eq(persistent_new(&setup, &other, &objects_err), TCK_ERR_IO, "%s", objects_err.text);
}

static void *ask_secret(void *ctx)
{
    struct racer *r = ctx;
    struct error err = {0};
    struct secret secret = {0};
    r->terms[0] = persistent_secret(r->tier, &secret, &err) == TCK_OK;
    memcpy(&r->terms[1], secret.bytes, SECRET_BYTES);
    return NULL;
}

Test(terms, all_nodes_get_the_same_secret)
{
    struct racer racers[RACERS] = {0};
    for (int i = 0; i < RACERS; i++) {
        racers[i].tier = objects_tier(false);
        cr_assert_eq(pthread_create(&racers[i].thread, NULL, ask_secret, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        persistent_free(racers[i].tier);
        cr_assert(racers[i].terms[0] == 1 && memcmp(&racers[i].terms[1], &racers[0].terms[1], SECRET_BYTES) == 0);
    }
}

Test(terms, a_secret_that_cannot_be_read_is_not_made_again)
{
    struct secret secret = {0};
    cr_assert_eq(persistent_secret(tier, &secret, &objects_err), TCK_OK, "%s", objects_err.text);
    fail(MEMORY_GET, "secret", MEMORY_NEVER);
    cr_assert_eq(persistent_secret(tier, &secret, &objects_err), TCK_ERR_TIMEDOUT);
    memory_store_damage(objects_store, "job/secret", 3);
    memory_store_set(objects_store, "job/secret", "short", 5);
    cr_assert_eq(persistent_secret(tier, &secret, &objects_err), TCK_ERR_CORRUPT);
}
