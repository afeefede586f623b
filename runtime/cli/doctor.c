/* SPDX-License-Identifier: Apache-2.0
 * tierckpt doctor: what this machine offers and, inside a job, which launcher settings are known to break recovery. */
#include "cli/cli.h"

#include "base/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum verdict { GOOD, NOTE, BAD };

struct report {
    bool json;
    json_t *list;
    uint32_t bad;
};

static void tell(struct report *report, enum verdict verdict, const char *what, const char *detail)
{
    static const char *const words[] = {[GOOD] = "good", [NOTE] = "note", [BAD] = "BAD"};
    report->bad += verdict == BAD;
    if (!report->json) {
        printf("%-5s %-18s %s\n", words[verdict], what, detail);
    }
    json_t *item = json_object();
    json_add_str(item, "verdict", words[verdict]);
    json_add_str(item, "what", what);
    json_add_str(item, "detail", detail);
    json_add(report->list, NULL, item);
}

static bool read_file(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, cap - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void check_pages(struct report *report, const struct config *config)
{
    char free_pages[32], shmem[128], detail[CONFIG_PATH + 512];
    bool hugetlb =
        read_file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free_pages, sizeof free_pages) &&
        strcmp(free_pages, "0") != 0;
    bool known = read_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof shmem);
    bool thp = known && !strstr(shmem, "[never]") && !strstr(shmem, "[deny]");
    bool mount = config->hugetlb_mount[0] != '\0';
    snprintf(detail, sizeof detail,
             "reserved 2 MiB pages free: %s; shmem_enabled: %s; hugetlb_mount: %s; own mount possible: %s", free_pages,
             known ? shmem : "unknown", mount ? config->hugetlb_mount : "none", geteuid() == 0 ? "yes" : "no");
    bool any = hugetlb || thp || mount || geteuid() == 0;
    tell(report, any ? GOOD : NOTE, "huge pages", detail);
    if (!any) {
        tell(report, NOTE, "huge pages",
             "none of the ways to 2 MiB pages is open: drains cost more CPU; registration takes longer");
    }
}

static void check_memory(struct report *report, const struct config *config)
{
    char detail[256], cap[32], lock[32];
    struct rlimit limit;
    text_bytes(config->memory_cap_bytes, cap, sizeof cap);
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(detail, sizeof detail, "memory_cap_bytes is %s, %.0f %% of this machine's memory", cap,
             100.0 * (double)config->memory_cap_bytes / (double)total);
    tell(report, config->memory_cap_bytes < total / 10 * 9 ? GOOD : BAD, "memory cap", detail);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        text_bytes(limit.rlim_cur, lock, sizeof lock);
        bool unlimited = limit.rlim_cur == RLIM_INFINITY;
        snprintf(detail, sizeof detail, "%s%s", unlimited ? "unlimited" : lock,
                 unlimited ? "" : "; RDMA networks need more");
        tell(report, unlimited ? GOOD : NOTE, "locked memory", detail);
    }
}

/* ---- network ------------------------------------------------------------------------------------------------- */

static void check_network(struct report *report, const struct config *config)
{
    struct ifaddrs *all = NULL;
    char names[256] = "";
    bool found = false;
    if (getifaddrs(&all) != 0) {
        tell(report, BAD, "network", "interfaces cannot be listed");
        return;
    }
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%s", used ? " " : "", i->ifa_name);
            found = found || strcmp(i->ifa_name, config->net_device) == 0;
        }
    }
    freeifaddrs(all);
    char detail[512];
    if (config->net_device[0] == '\0') {
        snprintf(detail, sizeof detail, "net_device is not set: UCX uses every interface of: %s", names);
        tell(report, NOTE, "network device", detail);
    } else {
        snprintf(detail, sizeof detail, "%s %s among the IPv4 interfaces: %s", config->net_device,
                 found ? "is" : "IS NOT", names);
        tell(report, found ? GOOD : BAD, "network device", detail);
    }
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

static void check_storage(struct report *report, const struct config *config)
{
    char detail[CONFIG_PATH + 128], room[32];
    struct statvfs fs;
    if (access(config->save_dir, W_OK) != 0 || statvfs(config->save_dir, &fs) != 0) {
        snprintf(detail, sizeof detail, "save_dir %s: %s", config->save_dir, strerrordesc_np(errno));
        tell(report, errno == ENOENT ? NOTE : BAD, "storage", detail);
        return;
    }
    text_bytes((uint64_t)fs.f_bavail * fs.f_frsize, room, sizeof room);
    snprintf(detail, sizeof detail, "save_dir %s has %s free", config->save_dir, room);
    tell(report, GOOD, "storage", detail);
    bool direct = direct_write(config->save_dir);
    tell(report, direct ? GOOD : NOTE, "O_DIRECT",
         direct ? "works there" : "is refused there: drains go through the page cache");
    struct io_uring_params params = {0};
    long ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring >= 0) {
        close((int)ring);
    }
    tell(report, ring >= 0 ? GOOD : NOTE, "io_uring",
         ring >= 0 ? "works" : "is switched off: drains use threads instead");
}

/* ---- launcher ------------------------------------------------------------------------------------------------ */

static void check_torchrun(struct report *report)
{
    const char *share = getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
    bool set = share && strcmp(share, "1") == 0;
    tell(report, set ? GOOD : BAD, "torchrun store",
         set ? "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
             : "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: with torchrun's default a lost node or trainer is not "
               "recovered "
               "(survivors reuse the store of the round before)");
    const char *restarts = getenv("TORCHELASTIC_MAX_RESTARTS");
    bool enough = restarts && strtoul(restarts, NULL, 10) > 0;
    tell(report, enough ? GOOD : BAD, "torchrun restarts",
         enough ? "--max-restarts is above 0" : "--max-restarts is 0: torchrun ends the job at the first lost trainer");
    tell(report, getenv("GLOO_SOCKET_IFNAME") ? GOOD : NOTE, "gloo interface",
         getenv("GLOO_SOCKET_IFNAME")
             ? "GLOO_SOCKET_IFNAME is set"
             : "GLOO_SOCKET_IFNAME is not set: in containers and namespaces gloo may choose wrongly");
}

static void check_launcher(struct report *report)
{
    if (getenv("TORCHELASTIC_RUN_ID")) {
        check_torchrun(report);
    } else {
        tell(report, NOTE, "launcher",
             "not inside a torchrun job: its settings were not checked (run doctor in the job)");
    }
}

int cli_doctor(const struct cli *cli)
{
    struct report report = {.json = cli->json, .list = json_array()};
    check_pages(&report, &cli->config);
    check_memory(&report, &cli->config);
    check_network(&report, &cli->config);
    check_storage(&report, &cli->config);
    check_launcher(&report);
    json_t *answer = json_object();
    json_add_bool(answer, "ok", report.bad == 0);
    json_add(answer, "checks", report.list);
    (void)cli_json(cli, answer);
    json_free(answer);
    return report.bad == 0 ? 0 : 1;
}
