/* SPDX-License-Identifier: Apache-2.0
 * Prometheus' text format: values that would break it, and texts that do not fit. */
#include "base/exposition.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static void expect_value(const char *value, const char *shown)
{
    struct exposition x;
    char *text, want[128];
    size_t len = 0;
    exposition_begin(&x, 4096, NULL, 0);
    exposition_family(&x, "f", FAMILY_GAUGE, "h.");
    exposition_sample(&x, &(struct label){"l", value}, 1, 7, 0);
    text = exposition_end(&x, &len);
    cr_assert_not_null(text);
    snprintf(want, sizeof(want), "# HELP f h.\n# TYPE f gauge\nf{l=\"%s\"} 7\n", shown);
    cr_assert_eq(len, strlen(want), "%.*s", (int)len, text);
    cr_assert_eq(memcmp(text, want, len), 0, "%.*s", (int)len, text);
    free(text);
}

Test(exposition, escapes_label_values)
{
    expect_value("plain", "plain");
    expect_value("a\\b\"c\nd", "a\\\\b\\\"c\\nd");
    expect_value("caf\xc3\xa9", "caf\xc3\xa9");
    expect_value("caf\xe9", "caf?");
    expect_value("\x01\x7f\r\t", "????");
    expect_value("", "");
}

Test(exposition, numbers_are_exact)
{
    struct exposition x;
    size_t len = 0;
    exposition_begin(&x, 4096, &(struct label){"a", "b"}, 1);
    exposition_family(&x, "f_total", FAMILY_COUNTER, "h.");
    exposition_sample(&x, NULL, 0, UINT64_MAX, 0);
    exposition_sample(&x, NULL, 0, 1005, 3);
    exposition_sample(&x, NULL, 0, 0, 9);
    char *text = exposition_end(&x, &len);
    static const char want[] = "# HELP f_total h.\n# TYPE f_total counter\nf_total{a=\"b\"} 18446744073709551615\n"
                               "f_total{a=\"b\"} 1.005\nf_total{a=\"b\"} 0.000000000\n";
    cr_assert_eq(len, sizeof(want) - 1);
    cr_assert_eq(memcmp(text, want, len), 0, "%.*s", (int)len, text);
    free(text);
}

Test(exposition, a_text_that_does_not_fit_is_not_written_at_all)
{
    struct exposition x;
    size_t len = 0;
    exposition_begin(&x, 256, &(struct label){"a", "b"}, 1);
    exposition_family(&x, "f", FAMILY_GAUGE, "h.");
    for (int i = 0; i < 100; i++) {
        exposition_sample(&x, NULL, 0, 1, 0);
    }
    cr_assert_null(exposition_end(&x, &len));
}

Test(exposition, labels_that_do_not_fit_are_not_written_either)
{
    struct exposition x;
    size_t len = 0;
    char name[300];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    exposition_begin(&x, 256, &(struct label){"a", name}, 1);
    exposition_family(&x, "f", FAMILY_GAUGE, "h.");
    exposition_sample(&x, NULL, 0, 1, 0);
    cr_assert_null(exposition_end(&x, &len));
}
