/* SPDX-License-Identifier: Apache-2.0
 * What ends the trouble with storage that a node knows of. */
#include "agent/storage/health.h"

#include "base/trouble.h"

#include <criterion/criterion.h>

static struct health *health;
static uint32_t changes;

static void changed(void *ctx)
{
    (void)ctx;
    changes++;
}

static void set_up(void)
{
    struct error err;
    cr_assert_eq(health_new(changed, NULL, &health, &err), TCK_OK);
    changes = 0;
}

static void tear_down(void)
{
    health_free(health);
}

TestSuite(health, .init = set_up, .fini = tear_down);

static struct error full(void)
{
    struct error err = {0};
    (void)error_set(&err, TCK_ERR_NOSPC, "No space left on device");
    return err;
}

static void coordinator_reports(uint64_t step)
{
    struct trouble trouble = {0};
    struct error why = full();
    trouble_add(&trouble, step, &why, 1);
    health_handle_beat(health, &trouble);
}

static void assert_good(bool good)
{
    cr_assert_eq(health_storage(health)->code == TCK_OK, good);
}

Test(health, a_version_that_is_published_ends_own_trouble)
{
    struct error why = full();
    health_storage_failed(health, 4, &why);
    assert_good(false);
    health_storage_published(health);
    assert_good(true);
    cr_assert_eq(changes, 2);
}

/* Otherwise a job that ends before the coordinator's next heartbeat keeps the memory of a step that is on storage. */
Test(health, a_version_that_is_published_ends_what_the_coordinator_has_reported)
{
    coordinator_reports(4);
    assert_good(false);
    health_storage_published(health);
    assert_good(true);
    cr_assert_eq(changes, 2);
    coordinator_reports(4); /* it still has trouble, such as with deleting */
    assert_good(false);
}

Test(health, another_call_that_works_ends_neither_a_step_that_is_missing_nor_what_the_coordinator_has_reported)
{
    struct error why = full();
    coordinator_reports(4);
    health_storage_failed(health, 0, &why);
    health_storage_works(health);
    cr_assert_eq(health_own(health)->code, TCK_OK);
    assert_good(false);
    health_storage_failed(health, 4, &why);
    health_storage_works(health);
    cr_assert_neq(health_own(health)->code, TCK_OK);
}

Test(health, a_new_term_forgets_what_the_former_coordinator_has_reported)
{
    coordinator_reports(4);
    health_term_began(health);
    assert_good(true);
}
