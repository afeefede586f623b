/* SPDX-License-Identifier: Apache-2.0
 * Which file of trusted certificates is used. */
#include "tiers/object/trust.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(trust, what_is_configured_comes_before_the_environment)
{
    setenv("SSL_CERT_FILE", "/environment.pem", 1);
    cr_assert_str_eq(trust_file("/configured.pem"), "/configured.pem");
    cr_assert_str_eq(trust_file(""), "/environment.pem");
    cr_assert_str_eq(trust_file(NULL), "/environment.pem");
}

Test(trust, the_first_file_of_a_distribution_that_can_be_read_is_used)
{
    static const char *const files[] = {"/nowhere/a.pem", "/proc/self/status", "/proc/self/stat", NULL};
    static const char *const none[] = {"/nowhere/a.pem", NULL};
    cr_assert_str_eq(trust_first(files), "/proc/self/status");
    cr_assert_null(trust_first(none));
}
