/* SPDX-License-Identifier: Apache-2.0
 * tierckpt doctor: checks this machine and, inside a job, finds launcher settings that are known to break recovery. */
#include "cli/doctor_bucket.h"
#include "cli/doctor_network.h"
#include "cli/doctor_report.h"
#include "cli/storage.h"

#include "base/address_list.h"
#include "base/path.h"
#include "base/program.h"
#include "base/record.h"
#include "base/socket_address.h"
#include "tiers/clone_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void check_pages(struct report *report, const struct config *config)
{
    char free_pages[32], shmem[128], detail[CONFIG_PATH + 512];
    bool hugetlb =
        text_first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free_pages, sizeof(free_pages)) &&
        strcmp(free_pages, "0") != 0;
    bool known = text_first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof(shmem));
    bool thp = known && strstr(shmem, "[never]") == NULL && strstr(shmem, "[deny]") == NULL;
    bool mount = config->hugetlb_mount[0] != '\0';
    snprintf(detail, sizeof(detail),
             "reserved 2 MiB pages free: %s; shmem_enabled: %s; hugetlb_mount: %s; own mount possible: %s", free_pages,
             known ? shmem : "unknown", mount ? config->hugetlb_mount : "none", geteuid() == 0 ? "yes" : "no");
    bool any = hugetlb || thp || mount || geteuid() == 0;
    tell(report, any ? GOOD : NOTE, "huge pages", detail);
    if (!any) {
        tell(report, NOTE, "huge pages",
             "2 MiB pages are not available: drains use more CPU, and registration takes longer");
    }
}

static void check_memory(struct report *report, const struct config *config)
{
    char detail[256], cap[32], lock[32];
    struct rlimit limit;
    text_bytes(config->memory_cap_bytes, cap, sizeof(cap));
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(detail, sizeof(detail), "memory_cap_bytes is %s, %.0f %% of this machine's memory", cap,
             100.0 * (double)config->memory_cap_bytes / (double)total);
    tell(report, config->memory_cap_bytes < total / 10 * 9 ? GOOD : BAD, "memory cap", detail);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        text_bytes(limit.rlim_cur, lock, sizeof(lock));
        bool unlimited = limit.rlim_cur == RLIM_INFINITY;
        snprintf(detail, sizeof(detail), "%s%s", unlimited ? "unlimited" : lock,
                 unlimited ? "" : "; RDMA networks need more");
        tell(report, unlimited ? GOOD : NOTE, "locked memory", detail);
    }
}

/* ---- network ------------------------------------------------------------------------------------------------- */

/* The address of an entry; none if agents cannot use it. */
static struct ip ip_of_entry(const struct ifaddrs *entry)
{
    struct ip ip = entry->ifa_addr != NULL ? ip_of(entry->ifa_addr) : (struct ip){0};
    return ip_is_link_local(&ip) ? (struct ip){0} : ip;
}

/* Each once, with the first of its addresses. */
static bool is_first_of_its_name(const struct ifaddrs *all, const struct ifaddrs *entry)
{
    for (const struct ifaddrs *i = all; i != entry; i = i->ifa_next) {
        struct ip ip = ip_of_entry(i);
        if (!ip_is_none(&ip) && strcmp(i->ifa_name, entry->ifa_name) == 0) {
            return false;
        }
    }
    return true;
}

static void name_interfaces(const struct ifaddrs *all, char *out, size_t cap)
{
    out[0] = '\0';
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        struct ip ip = ip_of_entry(i);
        if (!ip_is_none(&ip) && is_first_of_its_name(all, i)) {
            size_t used = strlen(out);
            snprintf(out + used, cap - used, "%s%s", used ? " " : "", i->ifa_name);
        }
    }
}

/* NULL: there is none with this name, or this address. */
static const struct ifaddrs *find_interface(const struct ifaddrs *all, const char *device, const char *address)
{
    struct ip wanted = {0};
    bool known = address[0] == '\0' || ip_parse(address, &wanted);
    for (const struct ifaddrs *i = all; i != NULL && known; i = i->ifa_next) {
        struct ip ip = ip_of_entry(i);
        bool named = device[0] == '\0' || strcmp(i->ifa_name, device) == 0;
        if (!ip_is_none(&ip) && named && (address[0] == '\0' || ip_is(&ip, &wanted))) {
            return i;
        }
    }
    return NULL;
}

static void check_interface(struct report *report, const struct ifaddrs *all, const char *device, const char *address)
{
    char detail[512], names[256], what[ADDRESS_ITEM * 2 + 16];
    const struct ifaddrs *found = find_interface(all, device, address);
    const char *how = found == NULL                           ? "IS NOT"
                      : (found->ifa_flags & IFF_UP) == 0      ? "is, but switched off,"
                      : (found->ifa_flags & IFF_RUNNING) == 0 ? "is, but without a carrier,"
                                                              : "is";
    bool works = found != NULL && (found->ifa_flags & IFF_UP) != 0 && (found->ifa_flags & IFF_RUNNING) != 0;
    name_interfaces(all, names, sizeof(names));
    snprintf(what, sizeof(what), "%s%s%s", device, device[0] && address[0] ? " with address " : "", address);
    snprintf(detail, sizeof(detail), "%s %s among the interfaces with an address: %s", what, how, names);
    tell(report, works ? GOOD : BAD, "network device", detail);
}

static void check_network(struct report *report, const struct config *config)
{
    struct address_list devices, addresses;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        tell(report, BAD, "network", "interfaces cannot be listed");
        return;
    }
    if (address_list_read(config->net_device, &devices, NULL) != TCK_OK ||
        address_list_read(config->net_address, &addresses, NULL) != TCK_OK) {
        devices.count = addresses.count = 0; /* config_load has refused that */
    }
    if (devices.count == 0) {
        char names[256], detail[512];
        name_interfaces(all, names, sizeof(names));
        snprintf(detail, sizeof(detail), "net_device is not set: UCX uses every interface of: %s", names);
        tell(report, NOTE, "network device", detail);
    }
    for (size_t i = 0; i < devices.count || i < addresses.count; i++) {
        check_interface(report, all, i < devices.count ? devices.of[i] : "",
                        i < addresses.count ? addresses.of[i] : "");
    }
    freeifaddrs(all);
}

/* The addresses of other nodes, as this node's agent knows them. */
static void check_paths(struct report *report, const struct cli *cli)
{
    json_t *status = NULL;
    struct error err;
    uint64_t good = 0, bad = 0;
    if (control_ask(&cli->config, "status", NULL, CONTROL_MS, &status, &err) != TCK_OK) {
        return; /* no job is running */
    }
    for (const json_t *n = json_first(json_get(status, "nodes")); n != NULL; n = json_next(n)) {
        for (const json_t *a = json_first(json_get(n, "addresses")); a != NULL; a = json_next(a)) {
            char detail[512];
            snprintf(detail, sizeof(detail), "node %s does not answer at its address %s", text_of(n, "name"),
                     text_of(a, "address"));
            if (flag_of(a, "answers")) {
                good++;
            } else {
                bad++;
                tell(report, BAD, "network path", detail);
            }
        }
    }
    if (good > 0 && bad == 0) {
        char detail[128];
        snprintf(detail, sizeof(detail), "none of the %" PRIu64 " addresses of other nodes is known to fail", good);
        tell(report, GOOD, "network path", detail);
    }
    json_free(status);
}

/* ---- storage ------------------------------------------------------------------------------------------------- */

static bool direct_write(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    void *page = mmap(NULL, IMAGE_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good = fd >= 0 && page != MAP_FAILED && write(fd, page, IMAGE_ALIGN) == IMAGE_ALIGN;
    if (page != MAP_FAILED) {
        munmap(page, IMAGE_ALIGN);
    }
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

/* Whether files in save_dir can share blocks. Without O_TMPFILE, only the agent finds out, with its first drain. */
static void check_clones(struct report *report, const struct config *config)
{
    struct error err = {0};
    if (config->storage_clone <= 1 || config->storage_verify == SWITCH_OFF) {
        return;
    }
    int from = open(config->save_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int to = open(config->save_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    tck_status_t status = from >= 0 && to >= 0 ? clone_try(from, to, &err)
                                               : error_set(&err, TCK_ERR_INTERNAL,
                                                           "the first drain finds out whether files there can "
                                                           "share blocks");
    tell(report, status == TCK_OK ? GOOD : NOTE, "unchanged chunks",
         status == TCK_OK ? "files there can share blocks, so they are not written again" : err.text);
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
}

/* A place that cannot be written now: the agent creates it if its parent exists. */
static void check_missing(struct report *report, const char *key, const char *dir, int errnum)
{
    char detail[2 * CONFIG_PATH], parent[CONFIG_PATH];
    snprintf(parent, sizeof(parent), "%s", dir);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    bool made = errnum == ENOENT && access(parent, W_OK | X_OK) == 0;
    snprintf(detail, sizeof(detail), "%s %s: %s%s", key, dir, strerrordesc_np(errnum),
             made ? ": the first agent will create it" : ": nothing can be saved there");
    tell(report, made ? NOTE : BAD, "storage", detail);
}

static void check_bucket(struct report *report, const struct config *config)
{
    char detail[2 * CONFIG_PATH + ERROR_TEXT_BYTES];
    struct error err;
    bool decides = false;
    tck_status_t status = doctor_write_bucket(config->save_dir, config, &decides, &err);
    snprintf(detail, sizeof(detail), "save_dir %s %s%s", config->save_dir,
             status == TCK_OK ? "can be written" : "cannot be written: ", status == TCK_OK ? "" : err.text);
    tell(report, status == TCK_OK ? GOOD : BAD, "storage", detail);
    if (status == TCK_OK) {
        tell(report, decides ? GOOD : NOTE, "two starts",
             decides
                 ? "the server decides between them (If-None-Match)"
                 : "the server ignores the condition \"only if absent\" (If-None-Match), so it cannot decide "
                   "between them: a job of several nodes is refused, and one of one node must not be started twice");
    }
}

/* The other place to restore from, which may be in a bucket while save_dir is a directory. */
static void check_load_bucket(struct report *report, const struct config *config)
{
    char detail[2 * CONFIG_PATH + ERROR_TEXT_BYTES];
    struct error err;
    if (!path_is_url(config->load_dir)) {
        return;
    }
    tck_status_t status = doctor_list_bucket(config, &err);
    snprintf(detail, sizeof(detail), "load_dir %s %s%s", config->load_dir,
             status == TCK_OK ? "can be listed" : "cannot be listed: ", status == TCK_OK ? "" : err.text);
    tell(report, status == TCK_OK ? GOOD : BAD, "storage", detail);
}

static void check_archive(struct report *report, const struct config *config)
{
    const char *dir = config->archive_dir;
    char detail[2 * CONFIG_PATH + ERROR_TEXT_BYTES];
    struct error err = {0};
    bool ignored = false;
    if (dir[0] == '\0') {
        return;
    }
    if (path_is_url(dir)) {
        err.code = doctor_write_bucket(dir, config, &ignored, &err);
    } else if (access(dir, W_OK) != 0) {
        check_missing(report, "archive_dir", dir, errno);
        return;
    }
    snprintf(detail, sizeof(detail), "archive_dir %s %s%s", dir,
             err.code == TCK_OK ? "can be written" : "cannot be written: ", err.text);
    tell(report, err.code == TCK_OK ? GOOD : BAD, "storage", detail);
}

static void check_storage(struct report *report, const struct config *config)
{
    char detail[CONFIG_PATH + 128], room[32];
    struct statvfs fs;
    if (config->save_dir[0] == '\0') {
        tell(report, NOTE, "storage", "no job is configured, so save_dir was not checked: give --config FILE");
        return;
    }
    if (path_is_url(config->save_dir)) {
        check_bucket(report, config);
        return;
    }
    if (access(config->save_dir, W_OK) != 0 || statvfs(config->save_dir, &fs) != 0) {
        check_missing(report, "save_dir", config->save_dir, errno);
        return;
    }
    if (path_is_memory(config->save_dir)) {
        tell(report, NOTE, "storage", "save_dir is on a file system in memory: versions there are lost with the node");
    }
    text_bytes((uint64_t)fs.f_bavail * fs.f_frsize, room, sizeof(room));
    snprintf(detail, sizeof(detail), "save_dir %s has %s free", config->save_dir, room);
    tell(report, GOOD, "storage", detail);
    bool direct = direct_write(config->save_dir);
    tell(report, direct ? GOOD : NOTE, "O_DIRECT",
         direct ? "works there" : "is refused there: drains go through the page cache");
    check_clones(report, config);
    struct io_uring_params params = {0};
    long ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring >= 0) {
        close((int)ring);
    }
    tell(report, ring >= 0 ? GOOD : NOTE, "io_uring",
         ring >= 0 ? "works" : "is not available: drains use threads instead");
}

/* Runs in the process that reads storage: adds the results as "checks" and, if known, the free bytes as "free". */
static tck_status_t look_at_storage(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                    json_t *answer, struct error *err)
{
    struct report report = {.silent = true, .list = json_array()};
    struct statvfs fs;
    (void)persistent, (void)ctx, (void)err;
    check_storage(&report, &cli->config);
    check_load_bucket(&report, &cli->config);
    check_archive(&report, &cli->config);
    json_add(answer, "checks", report.list);
    if (statvfs(cli->config.save_dir, &fs) == 0) {
        json_add_u64(answer, "free", (uint64_t)fs.f_bavail * fs.f_frsize);
    }
    return TCK_OK;
}

/* Runs there, too: adds the number of versions in save_dir as "published", and the size of the newest as "bytes". */
static tck_status_t measure_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                     json_t *answer, struct error *err)
{
    struct published *list = NULL;
    struct manifest manifest;
    size_t count = 0;
    uint64_t bytes = 0, published = 0;
    (void)cli, (void)ctx;
    tck_status_t status = persistent_list(persistent, &list, &count, err);
    if (status == TCK_OK && count > 0) {
        status = persistent_manifest(persistent, &list[0], &manifest, err);
    }
    for (uint32_t i = 0; status == TCK_OK && count > 0 && i < manifest.file_count; i++) {
        bytes += manifest.files[i].bytes;
    }
    for (size_t i = 0; i < count; i++) {
        published += !list[i].from_second;
    }
    if (status == TCK_OK && count > 0) {
        manifest_free(&manifest);
    }
    free(list);
    json_add_u64(answer, "bytes", bytes);
    json_add_u64(answer, "published", published);
    return status;
}

/* From the status of the running job; 0: no job is running, or it does not know it yet. */
static uint64_t known_number(const struct cli *cli, const char *name)
{
    json_t *answer = NULL;
    struct error err;
    uint64_t number = 0;
    if (control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, &err) == TCK_OK) {
        number = number_of(answer, name);
        json_free(answer);
    }
    return number;
}

/* While a version is being written, all those to keep still exist. */
static void tell_room(struct report *report, uint64_t available, uint64_t bytes, uint64_t published, uint64_t keep)
{
    char detail[CONFIG_PATH + 256], room[32], each[32], wanted[32];
    uint64_t versions = keep + 1 > published ? keep + 1 - published : 1;
    text_bytes(available, room, sizeof(room));
    text_bytes(bytes, each, sizeof(each));
    text_bytes(bytes * versions, wanted, sizeof(wanted));
    if (keep == 0) {
        snprintf(detail, sizeof(detail),
                 "a version takes %s, so the %s free hold %" PRIu64 " more; max_ckpt_num is 0, so none is deleted",
                 each, room, (available / bytes));
    } else {
        snprintf(detail, sizeof(detail),
                 "a version takes %s; %" PRIu64 " exist and max_ckpt_num is %" PRIu64
                 ", so with the one being written %s more are needed, and %s are free",
                 each, published, keep, wanted, room);
    }
    bool enough = available >= bytes * versions;
    tell(report, enough ? keep == 0 ? NOTE : GOOD : BAD, "room for versions", detail);
}

static void check_room(struct report *report, const struct cli *cli, uint64_t available)
{
    static const struct storage_job job = {.work = measure_versions, .use = STORAGE_READ};
    json_t *found = NULL;
    struct error err;
    tck_status_t status = storage_do(cli, &job, &found, &err);
    if (status != TCK_OK && status != TCK_ERR_NOENT) {
        tell(report, BAD, "published versions", err.text);
        return;
    }
    uint64_t bytes = known_number(cli, "version_bytes");
    bytes = bytes == 0 ? number_of(found, "bytes") : bytes;
    if (bytes == 0) {
        tell(report, NOTE, "room for versions", "no version is known yet: run doctor while the job runs");
    } else {
        tell_room(report, available, bytes, number_of(found, "published"), cli->config.max_ckpt_num);
    }
    json_free(found);
}

static enum verdict verdict_of(const char *word)
{
    return strcmp(word, "good") == 0 ? GOOD : strcmp(word, "note") == 0 ? NOTE : BAD;
}

/* Reports a result even if storage does not answer. */
static void check_storage_in_time(struct report *report, const struct cli *cli)
{
    static const struct storage_job job = {.work = look_at_storage, .use = STORAGE_UNOPENED};
    json_t *found = NULL;
    struct error err;
    if (storage_do(cli, &job, &found, &err) != TCK_OK) {
        tell(report, BAD, "storage", err.text);
        return;
    }
    for (const json_t *check = json_first(json_get(found, "checks")); check != NULL; check = json_next(check)) {
        tell(report, verdict_of(text_of(check, "verdict")), text_of(check, "what"), text_of(check, "detail"));
    }
    if (json_get(found, "free") != NULL) {
        check_room(report, cli, number_of(found, "free"));
    }
    json_free(found);
}

/* ---- the end of a node --------------------------------------------------------------------------------------- */

#define LEAVE_S 5 /* that an agent needs beside the drain */

/* Whether an agent that gets SIGTERM can bring the newest version to storage before the system sends SIGKILL. */
static void check_grace(struct report *report, const struct cli *cli)
{
    char detail[512];
    uint64_t drain_s = (known_number(cli, "drain_ms") + 999) / 1000, grace_s = cli->config.grace_s;
    uint64_t needed_s = 2 * drain_s > grace_s ? 2 * drain_s : grace_s; /* one may be under way already */
    if (drain_s == 0) {
        snprintf(detail, sizeof(detail),
                 "no drain has been measured yet; with grace_s %" PRIu64 " the system must grant %" PRIu64
                 " s from SIGTERM to SIGKILL (terminationGracePeriodSeconds, KillWait, TimeoutStopSec)",
                 grace_s, grace_s + LEAVE_S);
    } else {
        snprintf(detail, sizeof(detail),
                 "the fastest drain took %" PRIu64 " s: grace_s, which is %" PRIu64 ", has to be at least %" PRIu64
                 ", and the system must grant %" PRIu64
                 " s from SIGTERM to SIGKILL (terminationGracePeriodSeconds, KillWait, TimeoutStopSec)",
                 drain_s, grace_s, 2 * drain_s, needed_s + LEAVE_S);
    }
    bool enough = drain_s > 0 && grace_s >= 2 * drain_s;
    tell(report, drain_s == 0 || grace_s == 0 ? NOTE : enough ? GOOD : BAD, "time to end", detail);
}

/* ---- UCX ----------------------------------------------------------------------------------------------------- */

/* The agent may have to wait for another UCX that cannot be loaded. */
#define UCX_MS 30000

/* Only the agent loads it. It is beside this command in a wheel, elsewhere in its own directory. */
static void check_ucx(struct report *report)
{
    char own[PATH_MAX] = "", agent[PATH_MAX + 32], line[CONFIG_PATH];
    const char *named = getenv("TIERCKPT_BIN_DIR"); /* NOLINT(concurrency-mt-unsafe): there is one thread */
    ssize_t len = readlink("/proc/self/exe", own, sizeof(own) - 1);
    char *slash = len > 0 ? strrchr(own, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
    }
    const char *const directories[] = {named != NULL ? named : own, own, TCK_INSTALL_BINDIR};
    for (size_t i = 0; i < sizeof(directories) / sizeof(*directories); i++) {
        snprintf(agent, sizeof(agent), "%s/tierckptd", directories[i]);
        if (program_line((const char *const[]){agent, "--ucx", NULL}, NULL, UCX_MS, line, sizeof(line))) {
            tell(report, NOTE, "UCX", line);
            return;
        }
    }
    tell(report, NOTE, "UCX",
         "not known: tierckptd was not found beside this command, or a library that it needs is missing or hangs");
}

/* ---- launcher ------------------------------------------------------------------------------------------------ */

/* Under Slurm the script of the job can start torchrun again, as deploy/slurm/job.sbatch does. */
static void check_restarts(struct report *report)
{
    const char *restarts = getenv("TORCHELASTIC_MAX_RESTARTS");
    bool enough = restarts != NULL && strtoul(restarts, NULL, 10) > 0;
    if (!enough && getenv("SLURM_JOB_ID") != NULL) {
        tell(report, NOTE, "torchrun restarts",
             "--max-restarts is 0: torchrun ends when a trainer is lost, and the script of the Slurm job has to start "
             "it again, as deploy/slurm/job.sbatch does");
        return;
    }
    tell(report, enough ? GOOD : BAD, "torchrun restarts",
         enough ? "--max-restarts is above 0" : "--max-restarts is 0: torchrun ends the job when a trainer is lost");
}

static void check_torchrun(struct report *report)
{
    const char *share = getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
    bool set = share != NULL && strcmp(share, "1") == 0;
    tell(report, set ? GOOD : BAD, "torchrun store",
         set ? "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
             : "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: with torchrun's default, a lost node or trainer is not "
               "recovered, since the survivors reuse the store of the previous round");
    check_restarts(report);
    tell(report, getenv("GLOO_SOCKET_IFNAME") != NULL ? GOOD : NOTE, "gloo interface",
         getenv("GLOO_SOCKET_IFNAME") != NULL
             ? "GLOO_SOCKET_IFNAME is set"
             : "GLOO_SOCKET_IFNAME is not set: in containers and namespaces, gloo may choose the wrong interface");
}

static void check_launcher(struct report *report)
{
    if (getenv("TORCHELASTIC_RUN_ID") != NULL) {
        check_torchrun(report);
    } else {
        tell(report, NOTE, "launcher",
             "this is not a torchrun job, so its settings were not checked: run doctor inside the job");
    }
}

int cli_doctor(const struct cli *cli)
{
    struct report report = {.silent = cli->json, .list = json_array()};
    check_pages(&report, &cli->config);
    check_memory(&report, &cli->config);
    check_network(&report, &cli->config);
    check_paths(&report, cli);
    if (cli->network) {
        doctor_network(cli, &report);
    }
    check_ucx(&report);
    check_storage_in_time(&report, cli);
    check_grace(&report, cli);
    check_launcher(&report);
    json_t *answer = json_object();
    json_add_bool(answer, "ok", report.bad == 0);
    json_add(answer, "checks", report.list);
    if (report.peers != NULL) {
        json_add(answer, "peers", report.peers);
    }
    (void)cli_json(cli, answer);
    json_free(answer);
    return report.bad == 0 ? 0 : 1;
}
