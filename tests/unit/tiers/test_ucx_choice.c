/* SPDX-License-Identifier: Apache-2.0
 * Which UCX is chosen, with directories that stand for /sys/class/infiniband and for the system's libraries. */
#include "tiers/ucx_choice.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/tck-ucx-XXXXXX";
static char devices[64], libraries[64];
static const char *directories[] = {libraries, NULL};
static struct ucx_version version; /* what the system's says; zeros: it cannot be loaded */
static int looked;

static bool tell_version(const char *directory, struct ucx_version *out)
{
    cr_assert_str_eq(directory, libraries);
    looked++;
    *out = version;
    return version.major != 0;
}

static void touch(const char *directory, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fclose(file);
}

static void setup(void)
{
    char modules[80];
    cr_assert_not_null(mkdtemp(top));
    snprintf(devices, sizeof(devices), "%s/infiniband", top);
    snprintf(libraries, sizeof(libraries), "%s/lib", top);
    snprintf(modules, sizeof(modules), "%s/ucx", libraries);
    cr_assert(mkdir(devices, 0700) == 0 && mkdir(libraries, 0700) == 0 && mkdir(modules, 0700) == 0);
    version = (struct ucx_version){1, 16, 0};
}

static void teardown(void)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf '%s'", top);
    cr_assert_eq(system(command), 0);
}

TestSuite(ucx_choice, .init = setup, .fini = teardown);

/* As in the wheel: the loaded one has no transports for RDMA. */
static struct ucx_places places(void)
{
    return (struct ucx_places){.loaded = "/site/libucx/lib",
                               .devices = devices,
                               .directories = directories,
                               .transports = "rc,tcp",
                               .version = tell_version};
}

static bool prefers(const struct ucx_places *where, char why[512])
{
    struct ucx_facts facts;
    ucx_look(where, &facts);
    return ucx_prefers_system(&facts, why, 512);
}

static void install(void)
{
    touch(libraries, "libucp.so.0");
    touch(libraries, "ucx/libuct_ib.so.0");
}

/* The wheel's agent finds its own beside its programs, as "bin/../../libucx/lib". */
Test(ucx_choice, a_directory_is_shown_without_dots)
{
    char dotted[128];
    struct ucx_facts facts;
    struct ucx_places where = places();
    snprintf(dotted, sizeof(dotted), "%s/../lib", devices);
    where.loaded = dotted;
    ucx_look(&where, &facts);
    cr_assert_str_eq(facts.loaded, libraries);
}

Test(ucx_choice, the_systems_is_taken_where_there_is_rdma)
{
    struct ucx_places where = places();
    char why[512];
    touch(devices, "mlx5_0");
    install();
    cr_assert(prefers(&where, why), "%s", why);
    cr_assert_not_null(strstr(why, "/site/libucx/lib has no transports"), "%s", why);
}

Test(ucx_choice, a_machine_without_devices_keeps_the_wheels)
{
    struct ucx_places where = places();
    char why[512];
    install();
    cr_assert_not(prefers(&where, why));
    cr_assert_str_eq(why, "this machine has no RDMA devices");
    where.devices = "/nonexistent/infiniband";
    cr_assert_not(prefers(&where, why));
    cr_assert_eq(looked, 0);
}

Test(ucx_choice, without_ucx_tls_agents_use_tcp_and_the_wheels)
{
    struct ucx_places where = places();
    char why[512];
    touch(devices, "mlx5_0");
    install();
    const char *const none[] = {NULL, "", "tcp"};
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        where.transports = none[i];
        cr_assert_not(prefers(&where, why));
        cr_assert_not_null(strstr(why, "UCX_TLS does not ask"), "%s", why);
    }
}

Test(ucx_choice, a_system_without_rdma_transports_is_not_taken)
{
    struct ucx_places where = places();
    char why[512];
    touch(devices, "mlx5_0");
    touch(libraries, "libucp.so.0");
    cr_assert_not(prefers(&where, why));
    cr_assert_not_null(strstr(why, "no other UCX is installed"), "%s", why);
}

Test(ucx_choice, a_system_that_is_too_old_or_cannot_be_loaded_is_not_taken)
{
    struct ucx_places where = places();
    char why[512];
    touch(devices, "mlx5_0");
    install();
    version = (struct ucx_version){1, 12, 1};
    cr_assert_not(prefers(&where, why));
    cr_assert_not_null(strstr(why, "is not 1.13 or newer"), "%s", why);
    version = (struct ucx_version){0};
    cr_assert_not(prefers(&where, why));
}

Test(ucx_choice, what_the_user_names_is_kept)
{
    struct ucx_facts facts;
    struct ucx_places where = places();
    char why[512];
    touch(devices, "mlx5_0");
    install();
    where.ld_path = "/opt/other:/site/libucx/lib64";
    ucx_look(&where, &facts);
    cr_assert_not(facts.named);
    where.ld_path = "/site/libucx/lib/more:/site/libucx/lib//more";
    ucx_look(&where, &facts);
    cr_assert_not(facts.named, "a directory in it is another one");
    where.ld_path = "/opt/other:/site/libucx/lib//";
    ucx_look(&where, &facts);
    cr_assert(facts.named);
    where.ld_path = "/opt/other:/site/libucx/lib:/opt/more";
    ucx_look(&where, &facts);
    cr_assert(facts.named);
    cr_assert_not(ucx_prefers_system(&facts, why, sizeof(why)));
    cr_assert_str_eq(why, "LD_LIBRARY_PATH names it");
}
