/* SPDX-License-Identifier: Apache-2.0
 * The configuration: the table of its fields, and how a configuration is made from defaults, file, text and
 * environment. */
#include "base/config.h"
#include "base/address_list.h"
#include "base/dscp.h"
#include "base/field.h"
#include "base/listen_address.h"
#include "base/metrics_file.h"
#include "base/path.h"
#include "base/typo.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_FILE_MAX (1u << 20)

/* Numbers and words are stored in the same way. */
static_assert(sizeof(enum storage_kind) == sizeof(uint32_t) && sizeof(enum redundancy) == sizeof(uint32_t) &&
                  sizeof(enum on_node_loss) == sizeof(uint32_t),
              "an enum field is a uint32_t");

/* ---- the table ----------------------------------------------------------------------------------------------- */

static const struct word storage_words[] = {{"posix", STORAGE_POSIX, false}, {"s3", STORAGE_S3, false}, {0}};
static const struct word redundancy_words[] = {
    {"replica", REDUNDANCY_REPLICA, false}, {"parity", REDUNDANCY_PARITY, true}, {0}};
static const struct word loss_words[] = {
    {"report", ON_NODE_LOSS_REPORT, false}, {"end_trainers", ON_NODE_LOSS_END_TRAINERS, false}, {0}};
static const struct word digest_words[] = {{"host", DIGEST_HOST, false}, {"device", DIGEST_DEVICE, false}, {0}};
static const struct word spread_words[] = {
    {"agents", SPREAD_AGENTS, false}, {"nccl", SPREAD_NCCL, false}, {"oob", SPREAD_OOB, false}, {0}};
static const struct word format_words[] = {{"tierckpt", STORAGE_FORMAT_TIERCKPT, false},
                                           {"dcp", STORAGE_FORMAT_DCP, false},
                                           {"framework", STORAGE_FORMAT_FRAMEWORK, false},
                                           {0}};
static const struct word switch_words[] = {{"off", SWITCH_OFF, false}, {"on", SWITCH_ON, false}, {0}};

#define AT(member)           .name = #member, .offset = offsetof(struct config, member)
#define CAP(member)          .cap = sizeof(((struct config *)0)->member)
#define NAME(member)         AT(member), CAP(member), .type = FIELD_NAME
#define TEXT(member)         AT(member), CAP(member), .type = FIELD_TEXT, .default_text = ""
#define PATH(member)         AT(member), CAP(member), .type = FIELD_PATH, .default_text = ""
#define PLACE(member)        AT(member), CAP(member), .type = FIELD_PLACE, .default_text = ""
#define NUMBER(member, a, b) AT(member), .type = FIELD_NUMBER, .min = (a), .max = (b)
#define WORD(member, list)   AT(member), .type = FIELD_WORD, .words = (list)
#define INTERVAL(member)     AT(member), .type = FIELD_INTERVAL

#define DAY_MS 86400000u
#define DAY_S  86400u

static const struct field fields[] = {
    {NAME(job), .default_text = "",
     .help =
         "name of the job, which is part of the names of its directories and sockets; default: the last component of "
         "save_dir and a digest of its path"},
    {NAME(node), .default_text = "", .help = "name of this node; default: $TIERCKPT_NODE, else the host name"},
    {NAME(domain), .default_text = "",
     .help = "failure domain: what fails together with this node (its rack, its switch); default: node"},
    {PATH(runtime_dir), .help =
                            "directory of the agent's socket, logs and catalog; default: $TIERCKPT_RUNTIME_DIR, else "
                            "$XDG_RUNTIME_DIR/tierckpt, else /tmp/tierckpt-<uid>"},
    {PLACE(save_dir), .help = "directory that all nodes see, or s3://bucket/prefix; versions are published in "
                              "<save_dir>/<job>/. Required"},
    {PLACE(load_dir), .help = "second place to restore from, as save_dir: versions are also searched for in "
                              "<load_dir>/<job>/; default: none"},
    {PLACE(archive_dir),
     .help =
         "place as save_dir to which some published versions are copied, and from which they are restored if "
         "save_dir has no whole one that is as new: <archive_dir>/<job>/; not together with load_dir; default: none"},
    {PATH(log_file_path),
     .help = "log of the agent and of the trainers of its node; default: <runtime_dir>/<job>/<node>/agent.log"},
    {PATH(audit_file_path),
     .help = "audit log: intent and result of each write and delete on storage; default: "
             "<save_dir>/<job>/audit.<node>.jsonl; with s3://, <runtime_dir>/<job>/<node>/audit.jsonl"},
    {PATH(token_file), .help = "file with the job's secret, mode 0600; default: <save_dir>/<job>/secret, which "
                               "the first agent creates"},
    {PATH(catalog_dir), .help = "directory of the catalog; default: <runtime_dir>/<job>/<node>/catalog"},
    {PATH(hugetlb_mount),
     .help = "tmpfs mount with huge=advise or always, in which segments are created; default: none"},
    {TEXT(net_device),
     .help = "network interface for traffic between agents, or several in the order in which they are used "
             "(\"eth0,eth1\", at most 4); default: UCX uses every interface"},
    {TEXT(net_address),
     .help = "address that other agents connect to, or several, as many as interfaces in net_device if that is set, "
             "all IPv4 (at most 4) or all IPv6 (at most 2), on all nodes; default: the first IPv4 address of each "
             "net_device, or of any interface that is up and not a loopback, or, without one, the first IPv6 address"},
    {NUMBER(net_port, 0, 65535), .default_text = "0",
     .help = "TCP port on which the agent listens for other agents, the same on each of its addresses; 0: any free "
             "port"},
    {TEXT(traffic_class),
     .help =
         "class of what agents send, for switches that give classes priorities: a DSCP name such as \"cs1\", \"le\" or "
         "\"af11\", or its number from 0 to 63; over TCP and RDMA; default: the system's"},
    {NUMBER(service_level, 0, 15), .default_text = "0",
     .help = "service level of what agents send over RDMA, for networks that give these priorities; 0: UCX chooses it"},
    {TEXT(metrics_listen),
     .help = "HOST:PORT at which the agent serves metrics to Prometheus, without authentication (GET /metrics); "
             "without a host, on the loopback interface only; port 0: any free port; default: none"},
    {PATH(metrics_textfile),
     .help = "file to which the agent writes the same metrics every few seconds, for the textfile collector of "
             "node_exporter; its name ends with .prom; default: none"},
    {PATH(trace_dir),
     .help = "directory of traces: each node writes <job>.<node>.trace.json, which says when each version was saved, "
             "copied, committed and drained, and which Perfetto opens; default: none"},
    {WORD(storage, storage_words), .default_text = "posix",
     .help = "kind of storage: posix (a directory), s3; follows from save_dir"},
    {WORD(redundancy, redundancy_words), .default_text = "replica",
     .help = "how memory is protected; replica makes whole copies on other nodes"},
    {INTERVAL(save_mem_interval), .default_text = "10", .changeable = true,
     .help = "how often to save to memory: a number of steps (20), a time (\"30s\", \"1.5m\"), never (\"off\", 0), or "
             "as it costs the training least: \"auto\", with the longest time from one save to the next \"auto:2m\""},
    {INTERVAL(save_storage_interval), .default_text = "100", .changeable = true,
     .help = "how often a save is also written to storage: a number of steps, a time, never, or \"auto\""},
    {INTERVAL(save_archive_interval), .default_text = "1000",
     .help = "how often a published version is also copied to archive_dir: a number of steps, a time, or never; it is "
             "the next one that is published after that many steps"},
    {NUMBER(max_ckpt_num, 0, 1000000), .default_text = "3", .changeable = true,
     .help = "number of published versions that are kept on storage; 0: all"},
    {NUMBER(max_archive_num, 0, 1000000), .default_text = "3",
     .help = "number of versions that are kept in archive_dir; 0: all"},
    {AT(memory_cap_bytes), .type = FIELD_BYTES, .default_text = "0",
     .help = "limit on the memory that this agent allocates for snapshots: bytes, or \"64GiB\"; 0: half of the "
             "machine's memory"},
    {WORD(memory_pressure, switch_words), .default_text = "on",
     .help = "whether the agent gives slots and copies back when memory on its node is short, and uses them again "
             "later: on, off"},
    {AT(memory_reserve_bytes), .type = FIELD_BYTES, .default_text = "0",
     .help = "memory is short when less than this is left on the machine or in the agent's control group, and nearly "
             "used up at half of it: bytes, or \"2GiB\"; 0: 2 % of that memory, at least 64 MiB"},
    {NUMBER(slots, 2, 3), .default_text = "3",
     .help =
         "number of snapshots that a node has memory for, of each shard that its ranks save (of a shard that it holds "
         "for others: two); with 2, a save is refused while the previous one is undecided"},
    {NUMBER(copies, 1, CONFIG_COPIES_MAX), .default_text = "2",
     .help = "number of copies of each shard in distinct domains, including the node's own; 1: no replicas"},
    {.name = "target_inflation",
     .offset = offsetof(struct config, target_inflation_ppm),
     .type = FIELD_SHARE,
     .default_text = "0.01",
     .help =
         "by which part of its time copies and drains may make a step longer: they are spread over the time between "
         "versions accordingly; 0: they go as fast as they can"},
    {NUMBER(block_time_ms, 1, DAY_MS), .default_text = "2000",
     .help = "how long a save may block the training while it waits for the agent"},
    {NUMBER(linger_s, 0, 365 * DAY_S), .default_text = "600",
     .help = "how long an agent keeps running, with its memory, after its last trainer has ended"},
    {NUMBER(grace_s, 0, DAY_S), .default_text = "20",
     .help = "how long an agent that gets SIGTERM may take to drain the newest version to storage, if it is only in "
             "memory, before it exits; less than the time after which the system sends SIGKILL"},
    {NUMBER(heartbeat_ms, 1, DAY_MS), .default_text = "500", .help = "how often agents send each other heartbeats"},
    {NUMBER(peer_timeout_ms, 1, DAY_MS), .default_text = "3000",
     .help = "a node without a heartbeat for this long counts as lost; at least twice heartbeat_ms"},
    {NUMBER(tree_from_nodes, 0, 1u << 20), .default_text = "1024",
     .help = "from so many nodes on, most agents exchange messages with rank 0's agent through agents that lead groups "
             "of nodes, so that it has few connections; 0: never"},
    {NUMBER(version_timeout_ms, 1, DAY_MS), .default_text = "60000",
     .help = "an undecided version is aborted when nothing of it has moved for this long"},
    {NUMBER(restore_wait_ms, 0, DAY_MS), .default_text = "3000",
     .help = "how long a recovery waits for known nodes that do not answer or are down"},
    {NUMBER(session_wait_ms, 1, DAY_MS), .default_text = "30000",
     .help =
         "how long attach, register and restore wait for nodes that cannot be reached before they fail and name them"},
    {NUMBER(max_restore_tries, 1, 1000000), .default_text = "3",
     .help = "how many runs may restore a version and then fail without a new commit before an older version is "
             "restored instead"},
    {NUMBER(copy_threads, 0, 256), .default_text = "0",
     .help = "number of copying threads per rank; 0: for a save one per four processors that the rank may use, at "
             "most 4; for a restore one per processor, at most 8"},
    {WORD(digest, digest_words), .default_text = "host",
     .help = "where digests of records on a CUDA device are computed: host, or device (also on the device, before the "
             "copy, so that damage on the way to the host is detected)"},
    {WORD(on_node_loss, loss_words), .default_text = "report", .changeable = true,
     .help =
         "what the other agents do when a node is lost: report, or end_trainers (they end their trainers, so that the "
         "launcher restarts at once)"},
    {WORD(restore_spread, spread_words), .default_text = "agents",
     .help = "who sends a replaced node the shards that its data-parallel twins have: agents; nccl or oob (the ranks "
             "themselves, by NCCL or by the program's own allgather, which is slow; if that fails, the agents)"},
    {NUMBER(restore_spread_timeout_ms, 1, DAY_MS), .default_text = "30000",
     .help = "how long ranks that send each other shards (restore_spread) may make no progress before the agents do it "
             "instead"},
    {NUMBER(storage_timeout_ms, 100, DAY_MS), .default_text = "20000",
     .help =
         "how long an operation on storage may make no progress before it is given up; a file that is written beside "
         "others has this time for each of them, as long as any makes progress; saves to memory and restores from "
         "memory never wait for it"},
    {WORD(storage_format, format_words), .default_text = "tierckpt",
     .help = "who can open what goes to storage: tierckpt; dcp (also PyTorch's dcp.load and torchtitan, without "
             "Tierckpt, by a file .metadata; with tierckpt.dcp and tierckpt.torchtitan only); or framework (it is the "
             "framework's own checkpoint, and no version is published; with tierckpt.transformers, tierckpt.megatron "
             "and tierckpt.deepspeed only)"},
    {WORD(storage_verify, switch_words), .default_text = "on",
     .help = "whether files are read back from storage and compared before they are published: on, off"},
    {NUMBER(storage_clone, 0, 1000), .default_text = "8",
     .help =
         "of so many published versions in a row the first is written as a whole, and the files of the others share "
         "with those before them the chunks that have not changed, where save_dir is a directory, its file system "
         "can (XFS, btrfs and others) and storage_verify is on; 0: every version is written as a whole"},
    {NUMBER(scrub_interval_s, 0, 365 * DAY_S), .default_text = "600",
     .help = "how often each snapshot in memory is checked against its digests; 0: never"},
    {NUMBER(scrub_storage_interval_s, 0, 365 * DAY_S), .default_text = "86400",
     .help =
         "time over which this node checks its files of one published version before it checks those of the next; 0: "
         "never"},
    {WORD(accept_fresh_start, switch_words), .default_text = "off",
     .help = "on: if all saved versions are permanently lost, the job starts from the beginning instead of failing; "
             "versions that cannot be read at the moment are still an error"},
    {TEXT(run_id),
     .help = "id of the launcher's run, by which its relaunches are distinguished from a second start of the job; "
             "default: $TORCHELASTIC_RUN_ID, else $SLURM_JOB_ID and $SLURM_STEP_ID, else none"},
    {WORD(takeover, switch_words), .default_text = "off",
     .help =
         "on: this start takes the job over from trainers that are still alive; off: the start is refused while there "
         "are any"},
    {WORD(show_progress, switch_words), .default_text = "on",
     .help = "on: while a start allocates memory or restores, rank 0 logs every 10 s how far that is; on a terminal, "
             "Python shows it in a line; off: neither"},
    {NUMBER(log_level, 0, 3), .default_text = "2",
     .help = "what is logged; 0: errors, 1: also warnings, 2: also important events, 3: everything"},
};

#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

bool config_field(size_t i, struct config_help *out)
{
    if (i >= FIELD_COUNT) {
        return false;
    }
    const struct field *f = &fields[i];
    *out = (struct config_help){
        .name = f->name, .default_text = f->default_text, .help = f->help, .changeable = f->changeable};
    field_takes(f, out->takes, sizeof(out->takes));
    return true;
}

static const struct field *field_find(const char *name)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

bool config_is_changeable(const char *key)
{
    const struct field *f = field_find(key);
    return f != NULL && f->changeable;
}

/* ---- decoding ------------------------------------------------------------------------------------------------ */

static const char *field_name(size_t i)
{
    return i < FIELD_COUNT ? fields[i].name : NULL;
}

static tck_status_t unknown_key(const char *key, struct error *err)
{
    const char *nearest = typo_nearest(key, field_name);
    if (nearest == NULL) {
        return error_set(err, TCK_ERR_CONFIG, "%.*s: unknown key; `tierckpt config` lists all keys", CONFIG_NAME, key);
    }
    return error_set(err, TCK_ERR_CONFIG, "%.*s: unknown key; did you mean %s?", CONFIG_NAME, key, nearest);
}

static tck_status_t as_config_error(struct error *err)
{
    if (err != NULL) {
        err->code = TCK_ERR_CONFIG;
    }
    return TCK_ERR_CONFIG;
}

/* Relative paths begin at dir. */
static tck_status_t apply_text(const char *text, size_t len, const char *dir, struct config *config, struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = json_parse(text, len, &json, err);
    if (status != TCK_OK) {
        return status == TCK_ERR_PROTO ? as_config_error(err) : status;
    }
    if (!json_is_object(json)) {
        status = error_set(err, TCK_ERR_CONFIG, "the configuration must be one JSON object: {\"save_dir\": ..., ...}");
    }
    for (const json_t *member = json_first(json); status == TCK_OK && member != NULL; member = json_next(member)) {
        const struct field *f = field_find(json_key(member));
        status = f == NULL ? unknown_key(json_key(member), err) : field_decode(f, config, member, dir, err);
    }
    json_free(json);
    return status;
}

/* The whole file as bytes of the caller's; one byte more than allowed is read to notice that it is too long. */
static tck_status_t read_file(const char *path, char **text_out, size_t *len_out, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return error_set(err, status_of_errno(errno), "cannot be opened: %m");
    }
    tck_status_t status = TCK_OK;
    char *text = malloc(CONFIG_FILE_MAX + 1);
    size_t len = text == NULL ? 0 : fread(text, 1, CONFIG_FILE_MAX + 1, file);
    if (text == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory to read it");
    } else if (ferror(file)) {
        status = error_set(err, status_of_errno(errno), "cannot be read: %m");
    } else if (len > CONFIG_FILE_MAX) {
        status =
            error_set(err, TCK_ERR_CONFIG, "is longer than %u bytes, so it cannot be a configuration", CONFIG_FILE_MAX);
    }
    fclose(file);
    if (status != TCK_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *len_out = len;
    return TCK_OK;
}

static tck_status_t apply_file(const char *path, struct config *config, struct error *err)
{
    char dir[CONFIG_PATH];
    char *text = NULL;
    size_t len = 0;
    tck_status_t status = path_of_dir(path, dir, sizeof(dir), err);
    if (status == TCK_OK) {
        status = read_file(path, &text, &len, err);
    }
    if (status == TCK_OK) {
        status = apply_text(text, len, dir, config, err);
        free(text);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%s", path);
}

/* ---- defaults and checks ------------------------------------------------------------------------------------- */

static tck_status_t set_defaults(struct config *config, struct error *err)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (fields[i].default_text[0] == '\0') {
            continue; /* derived later, or empty */
        }
        tck_status_t status = field_set(&fields[i], config, fields[i].default_text, NULL, err);
        if (status != TCK_OK) {
            return status;
        }
    }
    return TCK_OK;
}

/* NULL if the variable is not set or empty. */
static const char *from_environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

static tck_status_t derive_job(struct config *config, struct error *err)
{
    char job[CONFIG_NAME];
    if (config->job[0] != '\0' || config->save_dir[0] == '\0') {
        return TCK_OK;
    }
    config_job_of(config->save_dir, job);
    return field_set(field_find("job"), config, job, NULL, err);
}

static void derive_run_id(struct config *config)
{
    const struct run_environment env = {from_environment("TORCHELASTIC_RUN_ID"), from_environment("SLURM_JOB_ID"),
                                        from_environment("SLURM_STEP_ID")};
    if (config->run_id[0] == '\0') {
        config_run_id_of(&env, config->run_id);
    }
}

static tck_status_t derive_node(struct config *config, struct error *err)
{
    char host[CONFIG_PATH] = "";
    const char *from_env = from_environment("TIERCKPT_NODE");
    if (config->node[0] == '\0') {
        if (gethostname(host, sizeof(host) - 1) != 0) {
            return error_set(err, TCK_ERR_CONFIG, "node: must be set, because the host has no usable name: %m");
        }
        tck_status_t status = field_set(field_find("node"), config, from_env != NULL ? from_env : host, NULL, err);
        if (status != TCK_OK) {
            return error_prefix(err, "%s", from_env != NULL ? "$TIERCKPT_NODE" : "host name");
        }
    }
    if (config->domain[0] == '\0') {
        memcpy(config->domain, config->node, sizeof(config->domain));
    }
    return TCK_OK;
}

static tck_status_t derive_runtime_dir(struct config *config, struct error *err)
{
    char dir[2 * CONFIG_PATH];
    const char *own = from_environment("TIERCKPT_RUNTIME_DIR"), *xdg = from_environment("XDG_RUNTIME_DIR");
    if (config->runtime_dir[0] != '\0') {
        return TCK_OK;
    }
    if (own != NULL) {
        snprintf(dir, sizeof(dir), "%s", own);
    } else if (xdg != NULL && xdg[0] == '/') {
        snprintf(dir, sizeof(dir), "%s/tierckpt", xdg);
    } else {
        snprintf(dir, sizeof(dir), "/tmp/tierckpt-%u", geteuid());
    }
    return field_set(field_find("runtime_dir"), config, dir, NULL, err);
}

/* Sets a path that was not given to <dir>/<job>/<rest>. */
static tck_status_t derive_path(struct config *config, const char *key, const char *dir, const char *rest,
                                struct error *err)
{
    const struct field *f = field_find(key);
    char path[2 * CONFIG_PATH];
    if (((const char *)config + f->offset)[0] != '\0') {
        return TCK_OK;
    }
    snprintf(path, sizeof(path), "%s/%s/%s", dir, config->job, rest);
    return field_set(f, config, path, NULL, err);
}

static tck_status_t derive_paths(struct config *config, struct error *err)
{
    char log[CONFIG_PATH], catalog[CONFIG_PATH], audit[CONFIG_PATH];
    snprintf(log, sizeof(log), "%s/agent.log", config->node);
    snprintf(catalog, sizeof(catalog), "%s/catalog", config->node);
    snprintf(audit, sizeof(audit), path_is_url(config->save_dir) ? "%s/audit.jsonl" : "audit.%s.jsonl", config->node);
    tck_status_t status = derive_path(config, "log_file_path", config->runtime_dir, log, err);
    if (status == TCK_OK) {
        status = derive_path(config, "catalog_dir", config->runtime_dir, catalog, err);
    }
    if (status == TCK_OK) { /* a store of objects cannot append */
        status = derive_path(config, "audit_file_path",
                             path_is_url(config->save_dir) ? config->runtime_dir : config->save_dir, audit, err);
    }
    return status;
}

static void derive_memory_cap(struct config *config)
{
    if (config->memory_cap_bytes == 0) {
        config->memory_cap_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    }
}

static tck_status_t check_metrics(const struct config *config, struct error *err)
{
    struct socket_address ignored;
    if (config->metrics_textfile[0] != '\0' && metrics_file_check_name(config->metrics_textfile, err) != TCK_OK) {
        return error_prefix(err, "metrics_textfile");
    }
    if (config->metrics_listen[0] != '\0' && listen_address_parse(config->metrics_listen, &ignored, err) != TCK_OK) {
        return error_prefix(err, "metrics_listen");
    }
    return TCK_OK;
}

static tck_status_t check_network(const struct config *config, struct error *err)
{
    struct address_list devices, addresses;
    if (address_list_read(config->net_device, &devices, err) != TCK_OK) {
        as_config_error(err);
        return error_prefix(err, "net_device");
    }
    if (address_list_read(config->net_address, &addresses, err) != TCK_OK) {
        as_config_error(err);
        return error_prefix(err, "net_address");
    }
    if (devices.count > 0 && addresses.count > 0 && devices.count != addresses.count) {
        return error_set(err, TCK_ERR_CONFIG,
                         "net_address: there are %zu, but net_device has %zu: give one address for each interface, or "
                         "only one of the two keys",
                         addresses.count, devices.count);
    }
    return TCK_OK;
}

uint32_t config_dscp(const struct config *config)
{
    uint32_t dscp = 0;
    return dscp_read(config->traffic_class, &dscp) ? dscp : 0;
}

static tck_status_t check_class(const struct config *config, struct error *err)
{
    uint32_t ignored;
    if (config->traffic_class[0] != '\0' && !dscp_read(config->traffic_class, &ignored)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "traffic_class: \"%s\" is not the name of a DSCP class, as \"cs1\", \"af11\", \"le\" or "
                         "\"ef\" are, nor its number from 0 to 63",
                         config->traffic_class);
    }
    return TCK_OK;
}

const char *config_second_dir(const struct config *config)
{
    return config->archive_dir[0] != '\0' ? config->archive_dir : config->load_dir;
}

const char *config_second_key(const struct config *config)
{
    return config->archive_dir[0] != '\0' ? "archive_dir" : "load_dir";
}

static tck_status_t check_archive(const struct config *config, struct error *err)
{
    if (config->archive_dir[0] == '\0') {
        return TCK_OK;
    }
    if (config->load_dir[0] != '\0') {
        return error_set(err, TCK_ERR_CONFIG,
                         "archive_dir: cannot be set together with load_dir, since versions are searched for in one "
                         "place beside save_dir: leave out load_dir once the job has published a version of its own");
    }
    if (strcmp(config->archive_dir, config->save_dir) == 0) {
        return error_set(err, TCK_ERR_CONFIG, "archive_dir: is the same as save_dir: choose another place");
    }
    if (config->save_archive_interval.automatic) {
        return error_set(err, TCK_ERR_CONFIG,
                         "save_archive_interval: cannot be \"auto\": give a number of steps or a "
                         "time");
    }
    return TCK_OK;
}

/* Rules between several fields, and those that no type of field has. */
static tck_status_t check(const struct config *config, struct error *err)
{
    if (config->save_dir[0] == '\0') {
        return error_set(err, TCK_ERR_CONFIG, "save_dir: is required: give a directory that all nodes of the job see");
    }
    if (config->storage == STORAGE_S3 && !path_is_url(config->save_dir)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "storage: is \"s3\", and save_dir is a path: write s3://bucket/prefix there");
    }
    if (config->peer_timeout_ms < 2 * config->heartbeat_ms) {
        return error_set(err, TCK_ERR_CONFIG,
                         "peer_timeout_ms: %u is less than twice heartbeat_ms (%u): raise it, or lower heartbeat_ms",
                         config->peer_timeout_ms, config->heartbeat_ms);
    }
    tck_status_t status = check_network(config, err);
    status = status == TCK_OK ? check_archive(config, err) : status;
    status = status == TCK_OK ? check_class(config, err) : status;
    return status == TCK_OK ? check_metrics(config, err) : status;
}

/* A refused key or value may hold any byte; an error is one printable line. */
static void make_printable(struct error *err)
{
    for (char *c = err == NULL ? NULL : err->text; c != NULL && *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            *c = '?';
        }
    }
}

/* Derives the names, directories and the memory limit that were not given. */
static tck_status_t derive(struct config *config, struct error *err)
{
    tck_status_t status = derive_job(config, err);
    if (status == TCK_OK) {
        status = derive_node(config, err);
    }
    if (status == TCK_OK) {
        status = derive_runtime_dir(config, err);
    }
    if (status == TCK_OK && config->save_dir[0] != '\0') { /* otherwise there is no job whose name they could contain */
        status = derive_paths(config, err);
    }
    if (path_is_url(config->save_dir)) {
        config->storage = STORAGE_S3;
    }
    derive_memory_cap(config);
    derive_run_id(config);
    return status;
}

static tck_status_t hand_out(tck_status_t status, const struct config *config, struct config *out, struct error *err)
{
    if (status == TCK_OK) {
        *out = *config;
    } else {
        make_printable(err);
    }
    return status;
}

tck_status_t config_load(const char *file, const char *text, struct config *out, struct error *err)
{
    struct config config;
    tck_status_t status = set_defaults(&config, err);
    if (status == TCK_OK && file != NULL) {
        status = apply_file(file, &config, err);
    }
    if (status == TCK_OK && text != NULL) {
        status = apply_text(text, strlen(text), NULL, &config, err);
    }
    if (status == TCK_OK) {
        status = check(&config, err);
    }
    if (status == TCK_OK) {
        status = derive(&config, err);
    }
    return hand_out(status, &config, out, err);
}

tck_status_t config_defaults(struct config *out, struct error *err)
{
    struct config config;
    tck_status_t status = set_defaults(&config, err);
    if (status == TCK_OK) {
        status = derive(&config, err);
    }
    return hand_out(status, &config, out, err);
}

/* Tried on a copy first, and then only this member is written: other threads read the rest. */
static tck_status_t change_field(struct config *config, const char *key, const char *value, struct error *err)
{
    const struct field *f = field_find(key);
    if (f == NULL) {
        return unknown_key(key, err);
    }
    if (!f->changeable) {
        return error_set(
            err, TCK_ERR_CONFIG,
            "%s: cannot be changed while the job runs: change its configuration file and start the job again", key);
    }
    struct config changed = *config;
    tck_status_t status = field_set(f, &changed, value, NULL, err);
    if (status == TCK_OK) {
        status = check(&changed, err);
    }
    return status == TCK_OK ? field_set(f, config, value, NULL, err) : status;
}

tck_status_t config_change(struct config *config, const char *key, const char *value, struct error *err)
{
    tck_status_t status = change_field(config, key, value, err);
    if (status != TCK_OK) {
        make_printable(err);
    }
    return status;
}

json_t *config_json(const struct config *config)
{
    json_t *json = json_object();
    if (json == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!field_add(json, &fields[i], config)) {
            json_free(json);
            return NULL;
        }
    }
    return json;
}
