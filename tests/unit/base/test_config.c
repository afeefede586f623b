/* SPDX-License-Identifier: Apache-2.0
 * Configuration: defaults, precedence, refused values and their errors, printing and changing. */
#include "base/config.h"
#include "base/path.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void clean_environment(void)
{
    unsetenv("TIERCKPT_NODE");
    unsetenv("TIERCKPT_RUNTIME_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_STEP_ID");
}

TestSuite(config, .init = clean_environment);

static struct config loaded(const char *text)
{
    struct config config;
    struct error err = {0};
    cr_assert_eq(config_load(NULL, text, &config, &err), TCK_OK, "%s: %s", text, err.text);
    return config;
}

/* The text has one invalid member and a valid save_dir. */
static void expect_refused(const char *member, const char *error)
{
    char text[2048];
    struct config config;
    struct error err = {0};
    snprintf(text, sizeof(text), "{\"save_dir\":\"/s\",%s}", member);
    cr_assert_eq(config_load(NULL, text, &config, &err), TCK_ERR_CONFIG, "accepted %s", member);
    cr_assert_str_eq(err.text, error);
    cr_assert_eq(err.code, TCK_ERR_CONFIG);
}

Test(config, has_the_documented_defaults)
{
    struct config c = loaded("{\"save_dir\":\"/s\",\"node\":\"n\"}");
    char audit[CONFIG_PATH];
    cr_assert_eq(strncmp(c.job, "s-", 2), 0, "%s", c.job);
    cr_assert_str_eq(c.run_id, "");
    cr_assert_eq(c.takeover, SWITCH_OFF);
    cr_assert_str_eq(c.domain, "n");
    cr_assert_str_eq(c.load_dir, "");
    cr_assert_str_eq(c.token_file, "");
    snprintf(audit, sizeof(audit), "/s/%.60s/audit.n.jsonl", c.job);
    cr_assert_str_eq(c.audit_file_path, audit);
    cr_assert_eq(c.slots, 3);
    cr_assert_eq(c.copies, 2);
    cr_assert_eq(c.save_mem_interval.steps, 10);
    cr_assert_eq(c.save_storage_interval.steps, 100);
    cr_assert_eq(c.max_ckpt_num, 3);
    cr_assert_eq(c.block_time_ms, 2000);
    cr_assert_eq(c.digest, DIGEST_HOST);
    cr_assert_eq(c.on_node_loss, ON_NODE_LOSS_REPORT);
    cr_assert_gt(c.memory_cap_bytes, 0);
}

Test(config, takes_the_run_from_the_launcher_unless_it_is_given)
{
    setenv("TORCHELASTIC_RUN_ID", "abc", 1);
    cr_assert_str_eq(loaded("{\"save_dir\":\"/s\"}").run_id, "torchelastic:abc");
    cr_assert_str_eq(loaded("{\"save_dir\":\"/s\",\"run_id\":\"mine\"}").run_id, "mine");
}

#define NO_ADDRESS                                                               \
    " is not HOST:PORT with a numeric host: give, for example, 127.0.0.1:9464, " \
    "0.0.0.0:9464 for all interfaces, or :9464 for the loopback interface"

Test(config, exports_no_metrics_unless_asked_to)
{
    struct config c = loaded("{\"save_dir\":\"/s\"}");
    cr_assert_str_eq(c.metrics_listen, "");
    cr_assert_str_eq(c.metrics_textfile, "");
    c = loaded("{\"save_dir\":\"/s\",\"metrics_listen\":\":9464\",\"metrics_textfile\":\"/m/t.prom\"}");
    cr_assert_str_eq(c.metrics_listen, ":9464");
    cr_assert_str_eq(c.metrics_textfile, "/m/t.prom");
}

Test(config, refuses_places_for_metrics_where_nobody_would_find_them)
{
    expect_refused("\"metrics_listen\":\"node7:9464\"", "metrics_listen: \"node7:9464\"" NO_ADDRESS);
    expect_refused("\"metrics_listen\":\"9464\"", "metrics_listen: \"9464\"" NO_ADDRESS);
    expect_refused("\"metrics_textfile\":\"/m/t.txt\"",
                   "metrics_textfile: /m/t.txt is not the name of a .prom file, and node_exporter reads no other");
    expect_refused("\"metrics_textfile\":\"/m.prom/.prom\"",
                   "metrics_textfile: /m.prom/.prom is not the name of a .prom file, and node_exporter reads no other");
}

Test(config, requires_a_save_dir)
{
    struct config config;
    struct error err = {0};
    cr_assert_eq(config_load(NULL, "{}", &config, &err), TCK_ERR_CONFIG);
    cr_assert_str_eq(err.text, "save_dir: is required: give a directory that all nodes of the job see");
    cr_assert_eq(config_load(NULL, NULL, &config, &err), TCK_ERR_CONFIG);
}

Test(config, makes_paths_absolute)
{
    char here[CONFIG_PATH], want[CONFIG_PATH + 8];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(want, sizeof(want), "%s/sub/s", here);
    struct config c = loaded("{\"save_dir\":\"sub/s\"}");
    cr_assert_str_eq(c.save_dir, want);
}

Test(config, takes_relative_paths_from_where_its_file_lies)
{
    char dir[] = "/tmp/tck-config-XXXXXX", file[64], want[64], here[CONFIG_PATH];
    struct config c;
    struct error err = {0};
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(file, sizeof(file), "%s/job.json", dir);
    FILE *to = fopen(file, "w");
    fputs("{\"save_dir\":\"./ckpt/\",\"token_file\":\"../token\"}", to);
    fclose(to);
    cr_assert_eq(config_load(file, "{\"load_dir\":\"old\"}", &c, &err), TCK_OK, "%s", err.text);
    snprintf(want, sizeof(want), "%s/ckpt", dir);
    cr_assert_str_eq(c.save_dir, want);
    snprintf(want, sizeof(want), "%s/../token", dir);
    cr_assert_str_eq(c.token_file, want);
    cr_assert_eq(strncmp(c.load_dir, here, strlen(here)), 0, "the text's path is %s", c.load_dir);
    cr_assert_eq(chdir(dir), 0);
    cr_assert_eq(config_load("job.json", NULL, &c, &err), TCK_OK, "%s", err.text);
    snprintf(want, sizeof(want), "%s/ckpt", dir);
    cr_assert_str_eq(c.save_dir, want);
    unlink(file);
    rmdir(dir);
}

Test(config, knows_the_home_directory)
{
    setenv("HOME", "/home-of/me/", 1);
    cr_assert_str_eq(loaded("{\"save_dir\":\"~/x\"}").save_dir, "/home-of/me/x");
    cr_assert_str_eq(loaded("{\"save_dir\":\"~\"}").save_dir, "/home-of/me");
    unsetenv("HOME");
    expect_refused("\"load_dir\":\"~/x\"", "load_dir: \"~/x\": HOME is not set, so \"~\" is unknown: write the path");
}

Test(config, refuses_paths_that_would_be_misread)
{
    static const char *const urls[] = {"az://bucket/x", "gs://b", "hdfs://host:9000/x"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        char member[64], want[256];
        int scheme = (int)strcspn(urls[i], ":");
        snprintf(member, sizeof(member), "\"load_dir\":\"%s\"", urls[i]);
        snprintf(
            want, sizeof(want),
            "load_dir: \"%s\" is a URL, and %.*s is not supported: give a path on a file system that is mounted here",
            urls[i], scheme, urls[i]);
        expect_refused(member, want);
    }
    expect_refused("\"token_file\":\"file:///etc/t\"", "token_file: \"file:///etc/t\" is a URL: write the path alone, "
                                                       "\"/etc/t\"");
    expect_refused("\"runtime_dir\":\"/run/${USER}\"",
                   "runtime_dir: \"/run/${USER}\" has a variable, and variables are not expanded: write the path");
    expect_refused("\"log_file_path\":\"~bob/log\"", "log_file_path: \"~bob/log\": only your own \"~\" is expanded: "
                                                     "write the full path of the other user's directory");
    cr_assert_str_eq(loaded("{\"save_dir\":\"/a:b/c$/d~\"}").save_dir, "/a:b/c$/d~");
}

Test(config, save_dir_and_load_dir_may_be_in_a_store_of_objects)
{
    struct config c =
        loaded("{\"save_dir\":\"s3://bucket/a/b//\",\"load_dir\":\"s3://bucket\",\"job\":\"j\",\"node\":\"n\","
               "\"runtime_dir\":\"/run/x\"}");
    cr_assert_str_eq(c.save_dir, "s3://bucket/a/b");
    cr_assert_str_eq(c.load_dir, "s3://bucket");
    cr_assert_str_eq(c.audit_file_path, "/run/x/j/n/audit.jsonl");
    cr_assert_eq(c.storage, STORAGE_S3);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\"}").storage, STORAGE_POSIX);
    expect_refused("\"load_dir\":\"s3:/bucket/x\"",
                   "load_dir: \"s3:/bucket/x\": write s3://bucket/prefix, with two slashes");
    expect_refused("\"log_file_path\":\"s3://b/x\"",
                   "log_file_path: \"s3://b/x\" is a URL, and s3 is not supported: give a "
                   "path on a file system that is mounted here");
}

Test(config, refuses_urls_that_no_store_has)
{
    static const char *const urls[] = {"s3://",      "s3:///x",    "s3://b//x", "s3://b/../x",
                                       "s3://b/a b", "s3://b/x?y", "s3://b/."};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        char member[64], want[256];
        snprintf(member, sizeof(member), "\"load_dir\":\"%s\"", urls[i]);
        snprintf(want, sizeof(want),
                 "load_dir: \"%s\": write s3://bucket or s3://bucket/prefix, with letters, digits and . _ - only",
                 urls[i]);
        expect_refused(member, want);
    }
}

Test(config, no_error_has_the_credentials_of_a_url)
{
    static const char *const urls[] = {"s3://AKIA:SECRET@bucket/x", "s3://AKIA:SEC/SECRET@bucket",
                                       "s3:/AKIA:SECRET@bucket", "https://AKIA:SECRET@bucket/x"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        char out[64];
        struct error why = {0};
        cr_assert_eq(path_or_url(urls[i], NULL, out, sizeof(out), &why), TCK_ERR_CONFIG);
        cr_assert(strstr(why.text, "SECRET") == NULL && strstr(why.text, "AKIA") == NULL, "%s", why.text);
        cr_assert(strstr(why.text, "//bucket") != NULL, "%s", why.text);
        cr_assert_eq(path_absolute(urls[i], NULL, out, sizeof(out), &why), TCK_ERR_CONFIG);
        cr_assert(strstr(why.text, "SECRET") == NULL, "%s", why.text);
    }
}

Test(config, tidies_paths)
{
    cr_assert_str_eq(loaded("{\"save_dir\":\"//s/./t//\"}").save_dir, "/s/t");
    cr_assert_str_eq(loaded("{\"save_dir\":\"/\"}").save_dir, "/");
    cr_assert_str_eq(loaded("{\"save_dir\":\"/s/../t\"}").save_dir, "/s/../t");
}

Test(config, takes_the_environment_only_where_the_text_is_silent)
{
    setenv("TIERCKPT_NODE", "from-env", 1);
    setenv("TIERCKPT_RUNTIME_DIR", "/run/env", 1);
    struct config c = loaded("{\"save_dir\":\"/s\",\"job\":\"j\"}");
    cr_assert_str_eq(c.node, "from-env");
    cr_assert_str_eq(c.log_file_path, "/run/env/j/from-env/agent.log");
    c = loaded("{\"save_dir\":\"/s\",\"job\":\"j\",\"node\":\"own\",\"runtime_dir\":\"/r\"}");
    cr_assert_str_eq(c.node, "own");
    cr_assert_str_eq(c.catalog_dir, "/r/j/own/catalog");
}

Test(config, prefers_the_users_runtime_directory)
{
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    cr_assert_str_eq(loaded("{\"save_dir\":\"/s\"}").runtime_dir, "/run/user/7/tierckpt");
}

Test(config, refuses_an_unsafe_node_from_the_environment)
{
    struct config config;
    struct error err = {0};
    setenv("TIERCKPT_NODE", "../up", 1);
    cr_assert_eq(config_load(NULL, "{\"save_dir\":\"/s\"}", &config, &err), TCK_ERR_CONFIG);
    cr_assert_eq(strncmp(err.text, "$TIERCKPT_NODE: node: \"../up\"", 29), 0, "%s", err.text);
}

static void write_file(char path[32], const char *content)
{
    strcpy(path, "/tmp/tck-config-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
}

Test(config, lets_the_text_override_the_file)
{
    char path[32];
    struct config c;
    struct error err = {0};
    write_file(path, "{\"save_dir\":\"/file\",\"copies\":3,\"job\":\"a\"}\n");
    cr_assert_eq(config_load(path, "{\"copies\":1}", &c, &err), TCK_OK, "%s", err.text);
    unlink(path);
    cr_assert_eq(c.copies, 1);
    cr_assert_str_eq(c.save_dir, "/file");
    cr_assert_str_eq(c.job, "a");
}

Test(config, puts_the_file_name_before_its_errors)
{
    char path[32], want[128];
    struct config c;
    struct error err = {0};
    write_file(path, "{\"save_dir\":\"/s\",\n\"slots\":9}");
    cr_assert_eq(config_load(path, NULL, &c, &err), TCK_ERR_CONFIG);
    unlink(path);
    snprintf(want, sizeof(want), "%s: slots: 9 is out of range (2 to 3)", path);
    cr_assert_str_eq(err.text, want);
    cr_assert_eq(config_load(path, NULL, &c, &err), TCK_ERR_NOENT);
    snprintf(want, sizeof(want), "%s: cannot be opened: No such file or directory", path);
    cr_assert_str_eq(err.text, want);
}

Test(config, suggests_the_nearest_known_key)
{
    expect_refused("\"slotz\":3", "slotz: unknown key; did you mean slots?");
    expect_refused("\"save_mem_intervall\":3", "save_mem_intervall: unknown key; did you mean save_mem_interval?");
    expect_refused("\"Save-Mem-Interval\":3", "Save-Mem-Interval: unknown key; did you mean save_mem_interval?");
    expect_refused("\"storage_interval\":3", "storage_interval: unknown key; did you mean save_storage_interval?");
    expect_refused("\"save_directory\":\"/s\"", "save_directory: unknown key; did you mean save_dir?");
    expect_refused("\"checkpoint_path\":\"/s\"", "checkpoint_path: unknown key; `tierckpt config` lists all keys");
    expect_refused("\"elephant\":3", "elephant: unknown key; `tierckpt config` lists all keys");
}

Test(config, keeps_errors_on_one_line)
{
    expect_refused("\"two\\nlines\":1", "two?lines: unknown key; `tierckpt config` lists all keys");
    expect_refused("\"storage\":\"\\u001b[1m\"", "storage: \"?[1m\" is not one of: posix, s3");
}

Test(config, refuses_a_wrong_type_and_shows_the_value)
{
    expect_refused("\"slots\":\"3\"", "slots: must be a whole number, not \"3\"");
    expect_refused("\"slots\":2.5", "slots: must be a whole number, not 2.5");
    expect_refused("\"job\":7", "job: must be a text, not 7");
    expect_refused("\"load_dir\":null", "load_dir: must be a text, not null");
    expect_refused("\"save_mem_interval\":[10]",
                   "save_mem_interval: must be a number of steps or a text such as \"30s\", not [10]");
}

Test(config, refuses_values_out_of_range)
{
    expect_refused("\"slots\":1", "slots: 1 is out of range (2 to 3)");
    expect_refused("\"copies\":0", "copies: 0 is out of range (1 to 5)");
    expect_refused("\"copies\":6", "copies: 6 is out of range (1 to 5)");
    expect_refused("\"block_time_ms\":0", "block_time_ms: 0 is out of range (1 to 86400000)");
    expect_refused("\"net_port\":65536", "net_port: 65536 is out of range (0 to 65535)");
}

Test(config, refuses_a_timeout_that_heartbeats_cannot_meet)
{
    expect_refused("\"heartbeat_ms\":500,\"peer_timeout_ms\":999",
                   "peer_timeout_ms: 999 is less than twice heartbeat_ms (500): raise it, or lower heartbeat_ms");
    loaded("{\"save_dir\":\"/s\",\"heartbeat_ms\":500,\"peer_timeout_ms\":1000}");
}

Test(config, takes_several_interfaces_and_addresses)
{
    struct config config = loaded("{\"save_dir\":\"/s\",\"net_device\":\"eth0,eth1\"}");
    cr_expect_str_eq(config.net_device, "eth0,eth1");
    config = loaded("{\"save_dir\":\"/s\",\"net_device\":\"eth0,eth1\",\"net_address\":\"10.0.0.1,10.0.1.1\"}");
    cr_expect_str_eq(config.net_address, "10.0.0.1,10.0.1.1");
}

Test(config, takes_a_class_of_traffic_by_name_or_number)
{
    struct config config = loaded("{\"save_dir\":\"/s\"}");
    cr_expect_eq(config_dscp(&config), 0);
    config = loaded("{\"save_dir\":\"/s\",\"traffic_class\":\"CS1\"}");
    cr_expect_eq(config_dscp(&config), 8);
    config = loaded("{\"save_dir\":\"/s\",\"traffic_class\":\"le\"}");
    cr_expect_eq(config_dscp(&config), 1);
    config = loaded("{\"save_dir\":\"/s\",\"traffic_class\":\"63\",\"service_level\":3}");
    cr_expect_eq(config_dscp(&config), 63);
    cr_expect_eq(config.service_level, 3);
    const char *const bad[] = {"cs8", "64", "-1", "8 ", "0x8", " 8"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char member[64], text[200];
        snprintf(member, sizeof(member), "\"traffic_class\":\"%s\"", bad[i]);
        snprintf(text, sizeof(text),
                 "traffic_class: \"%s\" is not the name of a DSCP class, as \"cs1\", \"af11\", \"le\" or \"ef\" are, "
                 "nor its number from 0 to 63",
                 bad[i]);
        expect_refused(member, text);
    }
}

Test(config, refuses_what_is_no_list_of_interfaces_or_addresses)
{
    expect_refused("\"net_device\":\"eth0, eth1\"",
                   "net_device: \" eth1\" is not one of a list: separate them by commas, without spaces");
    expect_refused("\"net_address\":\"10.0.0.1,10.0.0.1\"", "net_address: 10.0.0.1 is in the list twice");
    expect_refused("\"net_device\":\"a,b,c,d,e\"", "net_device: there are more than 4 in the list");
    expect_refused(
        "\"net_device\":\"eth0\",\"net_address\":\"10.0.0.1,10.0.1.1\"",
        "net_address: there are 2, but net_device has 1: give one address for each interface, or only one of "
        "the two keys");
}

Test(config, refuses_what_this_version_does_not_support)
{
    expect_refused("\"redundancy\":\"parity\"", "redundancy: \"parity\" is not supported by this version");
    expect_refused("\"storage\":\"s3\"", "storage: is \"s3\", and save_dir is a path: write s3://bucket/prefix there");
    expect_refused("\"digest\":\"gpu\"", "digest: \"gpu\" is not one of: host, device");
    expect_refused("\"on_node_loss\":\"panic\"", "on_node_loss: \"panic\" is not one of: report, end_trainers");
}

Test(config, refuses_unsafe_names)
{
    static const char *const unsafe[] = {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa9"};
    char long_name[CONFIG_NAME + 1] = {0};
    for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++) {
        cr_assert_not(name_is_safe(unsafe[i]), "%s", unsafe[i]);
    }
    memset(long_name, 'a', CONFIG_NAME - 1);
    cr_assert(name_is_safe(long_name));
    long_name[CONFIG_NAME - 1] = 'a';
    cr_assert_not(name_is_safe(long_name));
    expect_refused("\"job\":\"../x\"", "job: \"../x\" must be 1 to 63 of A-Z a-z 0-9 . _ - and not begin with a dot");
}

Test(config, refuses_texts_that_do_not_fit)
{
    char text[CONFIG_PATH + 100], path[CONFIG_PATH + 10];
    struct config config;
    struct error err = {0};
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    path[CONFIG_PATH] = '\0';
    snprintf(text, sizeof(text), "{\"save_dir\":\"%s\"}", path);
    cr_assert_eq(config_load(NULL, text, &config, &err), TCK_ERR_CONFIG);
    path[CONFIG_PATH - 1] = '\0'; /* the path itself fits, but not that of the audit file below it */
    snprintf(text, sizeof(text), "{\"save_dir\":\"%s\"}", path);
    cr_assert_eq(config_load(NULL, text, &config, &err), TCK_ERR_CONFIG);
    cr_assert_eq(strncmp(err.text, "audit_file_path: ", 17), 0, "%s", err.text);
}

static struct interval interval_of(const char *value)
{
    char text[256];
    snprintf(text, sizeof(text), "{\"save_dir\":\"/s\",\"save_mem_interval\":%s}", value);
    return loaded(text).save_mem_interval;
}

static void expect_interval(const char *value, uint64_t steps, double seconds)
{
    struct interval interval = interval_of(value);
    cr_assert_eq(interval.steps, steps, "%s", value);
    cr_assert_float_eq(interval.seconds, seconds, 1e-9, "%s", value);
}

Test(config, reads_intervals_in_steps_seconds_or_never)
{
    expect_interval("20", 20, 0);
    expect_interval("\"20\"", 20, 0);
    expect_interval("\"30s\"", 0, 30);
    expect_interval("\"1.5m\"", 0, 90);
    expect_interval("\"2h\"", 0, 7200);
    expect_interval("\"250ms\"", 0, 0.25);
    expect_interval("\"off\"", 0, 0);
    expect_interval("0", 0, 0);
    expect_interval("\"0s\"", 0, 0);
}

Test(config, reads_automatic_intervals_which_begin_as_the_default)
{
    struct interval plain = interval_of("\"auto\""), bounded = interval_of("\"auto:2m\"");
    cr_assert(plain.automatic && bounded.automatic && !interval_of("10").automatic);
    cr_assert_eq(plain.steps, 10);
    cr_assert_eq(plain.at_most_seconds, 0);
    cr_assert_eq(bounded.steps, 10);
    cr_assert_eq(bounded.at_most_seconds, 120);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"save_storage_interval\":\"auto\"}").save_storage_interval.steps, 100);
}

Test(config, prints_automatic_intervals_without_the_steps_in_force)
{
    struct config c =
        loaded("{\"save_dir\":\"/s\",\"save_mem_interval\":\"auto\",\"save_storage_interval\":\"auto:1.5m\"}");
    c.save_mem_interval.steps = 7;
    json_t *json = config_json(&c);
    cr_assert_str_eq(json_str(json_get(json, "save_mem_interval")), "auto");
    cr_assert_str_eq(json_str(json_get(json, "save_storage_interval")), "auto:90s");
    json_free(json);
}

Test(config, refuses_intervals_that_are_neither)
{
    static const char *const bad[] = {
        "\"-5s\"",          "\"s\"",       "\"\"",          "\"5 s\"",     "\"5x\"",
        "\"0x10\"",         "\"inf s\"",   "\"1..2s\"",     "\"1e3s\"",    "\"9999999999s\"",
        "9007199254740992", "\"0.0001s\"", "\"nans\"",      "-1",          "\"auto:\"",
        "\"auto:0s\"",      "\"auto:5\"",  "\"automatic\"", "\"auto:-1s\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[256];
        struct config config;
        struct error err = {0};
        snprintf(text, sizeof(text), "{\"save_dir\":\"/s\",\"save_mem_interval\":%s}", bad[i]);
        cr_assert_eq(config_load(NULL, text, &config, &err), TCK_ERR_CONFIG, "accepted %s", bad[i]);
    }
}

Test(config, reads_bytes_with_units)
{
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"memory_cap_bytes\":\"64GiB\"}").memory_cap_bytes, UINT64_C(64) << 30);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"memory_cap_bytes\":\"512MiB\"}").memory_cap_bytes, UINT64_C(512) << 20);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"memory_cap_bytes\":4096}").memory_cap_bytes, 4096);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"memory_cap_bytes\":\"18446744073709551615\"}").memory_cap_bytes,
                 UINT64_MAX);
    expect_refused(
        "\"memory_cap_bytes\":\"16777216TiB\"",
        "memory_cap_bytes: \"16777216TiB\" is not a number of bytes below 2^64, plain or with KiB, MiB, GiB, "
        "TiB");
}

Test(config, prints_what_it_reads_back_to_the_same)
{
    struct config c = loaded(
        "{\"save_dir\":\"rel\",\"load_dir\":\"/l\",\"node\":\"n1\",\"domain\":\"rack7\","
        "\"save_mem_interval\":\"0.1s\",\"save_storage_interval\":\"off\",\"net_port\":7000,"
        "\"memory_cap_bytes\":\"18446744073709551615\",\"digest\":\"device\",\"on_node_loss\":\"end_trainers\"}");
    json_t *json = config_json(&c);
    char *text = json_print(json, true);
    json_free(json);
    struct config back = loaded(text);
    free(text);
    cr_assert_eq(memcmp(&c, &back, sizeof(c)), 0);
}

Test(config, an_archive_is_one_second_place_with_an_interval)
{
    struct config c = loaded("{\"save_dir\":\"/s\",\"archive_dir\":\"s3://bucket/a\",\"save_archive_interval\":500}");
    cr_assert_str_eq(config_second_dir(&c), "s3://bucket/a");
    cr_assert_str_eq(config_second_key(&c), "archive_dir");
    cr_assert_eq(c.save_archive_interval.steps, 500);
    cr_assert_eq(c.storage, STORAGE_POSIX);
    c = loaded("{\"save_dir\":\"/s\",\"load_dir\":\"/l\"}");
    cr_assert_str_eq(config_second_dir(&c), "/l");
    cr_assert_str_eq(config_second_key(&c), "load_dir");
    expect_refused("\"archive_dir\":\"/a\",\"load_dir\":\"/l\"",
                   "archive_dir: cannot be set together with load_dir, since versions are searched for in one place "
                   "beside save_dir: leave out load_dir once the job has published a version of its own");
    expect_refused("\"archive_dir\":\"/a\",\"save_archive_interval\":\"auto\"",
                   "save_archive_interval: cannot be \"auto\": give a number of steps or a time");
}

Test(config, says_which_keys_may_change_while_a_job_runs)
{
    cr_assert(config_is_changeable("save_mem_interval"));
    cr_assert_not(config_is_changeable("save_dir"));
    cr_assert_not(config_is_changeable("save_mem"), "no key");
}

Test(config, changes_only_changeable_fields)
{
    struct config c = loaded("{\"save_dir\":\"/s\"}");
    struct error err = {0};
    cr_assert_eq(config_change(&c, "save_mem_interval", "30s", &err), TCK_OK);
    cr_assert_eq(config_change(&c, "max_ckpt_num", "20", &err), TCK_OK);
    cr_assert_eq(config_change(&c, "on_node_loss", "end_trainers", &err), TCK_OK);
    cr_assert_float_eq(c.save_mem_interval.seconds, 30, 1e-9);
    cr_assert_eq(c.max_ckpt_num, 20);
    cr_assert_eq(c.on_node_loss, ON_NODE_LOSS_END_TRAINERS);
    cr_assert_eq(config_change(&c, "slots", "2", &err), TCK_ERR_CONFIG);
    cr_assert_str_eq(err.text,
                     "slots: cannot be changed while the job runs: change its configuration file and start the "
                     "job again");
    cr_assert_eq(config_change(&c, "max_ckpt", "2", &err), TCK_ERR_CONFIG);
}

Test(config, keeps_the_old_value_when_a_change_is_refused)
{
    struct config c = loaded("{\"save_dir\":\"/s\"}"), before = c;
    struct error err = {0};
    cr_assert_eq(config_change(&c, "max_ckpt_num", "-1", &err), TCK_ERR_CONFIG);
    cr_assert_str_eq(err.text, "max_ckpt_num: \"-1\" is not a whole number");
    cr_assert_eq(config_change(&c, "save_mem_interval", "soon", &err), TCK_ERR_CONFIG);
    cr_assert_eq(memcmp(&c, &before, sizeof(c)), 0);
}

Test(config, explains_every_field_that_it_prints)
{
    struct config c = loaded("{\"save_dir\":\"/s\"}");
    json_t *json = config_json(&c);
    struct config_help help;
    size_t count = 0;
    while (config_field(count, &help)) {
        cr_assert_not_null(json_get(json, help.name), "%s", help.name);
        cr_assert_gt(strlen(help.help), 10, "%s", help.name);
        cr_assert_not_null(help.default_text, "%s", help.name);
        count++;
    }
    cr_assert_eq(json_len(json), count);
    json_free(json);
}

static uint32_t target_of(const char *value)
{
    char text[128];
    snprintf(text, sizeof(text), "{\"save_dir\":\"/s\",\"target_inflation\":%s}", value);
    return loaded(text).target_inflation_ppm;
}

Test(config, a_part_is_a_number_or_a_text_with_or_without_percent)
{
    cr_assert_eq(loaded("{\"save_dir\":\"/s\"}").target_inflation_ppm, 10000);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"target_inflation\":0.00005}").target_inflation_ppm, 50);
    cr_assert_eq(loaded("{\"save_dir\":\"/s\",\"target_inflation\":0.1}").target_inflation_ppm, 100000);
    cr_assert_eq(target_of("0.02"), 20000);
    cr_assert_eq(target_of("\"2%\""), 20000);
    cr_assert_eq(target_of("\"0.005\""), 5000);
    cr_assert_eq(target_of("0"), 0);
    cr_assert_eq(target_of("\"50%\""), 500000);
    static const char *const bad[] = {"1", "-0.01", "51%", "", "1 %", "%", "0.01x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char member[128], error[256];
        snprintf(member, sizeof(member), "\"target_inflation\":\"%s\"", bad[i]);
        snprintf(error, sizeof(error),
                 "target_inflation: \"%s\" is not a part of the whole, 0.01 or \"1%%\", from 0 to 0.5", bad[i]);
        expect_refused(member, error);
    }
    expect_refused("\"target_inflation\":1",
                   "target_inflation: \"1\" is not a part of the whole, 0.01 or \"1%\", from 0 to 0.5");
    expect_refused("\"target_inflation\":[1]",
                   "target_inflation: must be a number such as 0.01 or a text such as \"1%\", not [1]");
}
