/* SPDX-License-Identifier: Apache-2.0
 * The configuration: one JSON object, decoded by one table of fields (config.c), which also prints it with help. */
#ifndef TCK_BASE_CONFIG_H
#define TCK_BASE_CONFIG_H

#include "base/config_names.h"

#define CONFIG_NET        96 /* bytes of a list of interfaces or of their addresses, its NUL included */
#define CONFIG_CLASS      8  /* bytes of the name of a class of traffic, its NUL included */
#define CONFIG_LISTEN     64 /* bytes of an address to listen at, its NUL included */
#define CONFIG_COPIES_MAX 5  /* the node's own copy, and as many holders of a shard as the core allows */

enum switch_state { SWITCH_OFF, SWITCH_ON };
enum on_node_loss { ON_NODE_LOSS_REPORT, ON_NODE_LOSS_END_TRAINERS };
enum restore_spread { SPREAD_AGENTS, SPREAD_NCCL, SPREAD_OOB };
enum redundancy { REDUNDANCY_REPLICA, REDUNDANCY_PARITY /* refused: not in this version */ };
enum digest_place { DIGEST_HOST, DIGEST_DEVICE };
enum storage_kind { STORAGE_POSIX, STORAGE_S3 };
enum storage_format { STORAGE_FORMAT_TIERCKPT, STORAGE_FORMAT_DCP, STORAGE_FORMAT_FRAMEWORK };

struct config {
    char job[CONFIG_NAME];             /* names directories and sockets: [A-Za-z0-9._-]+, not starting with a dot;
                                          default: config_job_of(save_dir) */
    char node[CONFIG_NAME];            /* default: the host name */
    char domain[CONFIG_NAME];          /* failure domain of this node; default: the node's name */
    char runtime_dir[CONFIG_PATH];     /* sockets; default $XDG_RUNTIME_DIR/tierckpt or /tmp/tierckpt-<uid> */
    char save_dir[CONFIG_PATH];        /* shared by all nodes, or s3://...; versions appear in <save_dir>/<job>/ */
    char load_dir[CONFIG_PATH];        /* versions are also searched for in <load_dir>/<job>/; default: save_dir only */
    char archive_dir[CONFIG_PATH];     /* published versions are copied to <archive_dir>/<job>/, too; default: none */
    char log_file_path[CONFIG_PATH];   /* of the node; default <runtime_dir>/<job>/<node>/agent.log */
    char audit_file_path[CONFIG_PATH]; /* intent and result of each save and delete on storage; default
                                          <save_dir>/<job>/audit.<node>.jsonl, or beside log_file_path */
    char token_file[CONFIG_PATH];      /* the job's secret; "": <save_dir>/<job>/secret, made by the first agent */
    char catalog_dir[CONFIG_PATH];     /* RocksDB; default <runtime_dir>/<job>/<node>/catalog */
    char hugetlb_mount[CONFIG_PATH];   /* tmpfs mount with huge=advise to take segments from; "" none */
    char net_device[CONFIG_NET];  /* interfaces for agent to agent traffic (address_list.h); "" = the one of the default
                                     address */
    char net_address[CONFIG_NET]; /* addresses other agents use, one for each interface; "" = the first address of
                                     each net_device */
    uint32_t net_port;            /* 0: any */
    char traffic_class[CONFIG_CLASS];   /* of what agents send (dscp.h); "": the system's */
    uint32_t service_level;             /* the same of RDMA; 0: what UCX chooses */
    char metrics_listen[CONFIG_LISTEN]; /* HOST:PORT of the agent's metrics (listen_address.h); "": none */
    char metrics_textfile[CONFIG_PATH]; /* the same metrics, for node_exporter; "": none */
    char trace_dir[CONFIG_PATH];        /* where a trace of each node is written; "": none */
    enum storage_kind storage;
    enum redundancy redundancy;
    struct interval save_mem_interval;
    struct interval save_storage_interval;
    struct interval save_archive_interval;
    uint32_t max_ckpt_num;         /* published versions kept; 0: all */
    uint32_t max_archive_num;      /* the same in archive_dir */
    uint64_t memory_reserve_bytes; /* kept free for others, 0: a share of what there is */
    uint64_t memory_cap_bytes;     /* of all segments of this agent; 0: half of the machine's memory */
    uint32_t slots;                /* per shard: 2 or 3 */
    uint32_t copies;               /* of each shard in distinct domains, including the node's own; 1: no replicas */
    uint32_t target_inflation_ppm; /* what copies and drains may cost a step, in millionths of its time; 0: they are not
                                      held back */
    uint32_t block_time_ms;        /* a save waits at most this long for the agent */
    uint32_t storage_timeout_ms;
    uint32_t linger_s; /* an agent without trainers exits after this */
    uint32_t grace_s;  /* an agent that gets SIGTERM drains the newest version first, for at most this long */
    uint32_t heartbeat_ms;
    uint32_t peer_timeout_ms;    /* without a heartbeat for this long a node counts as lost */
    uint32_t tree_from_nodes;    /* so many nodes have leaders that relay messages (core/tree.h); 0: never */
    uint32_t version_timeout_ms; /* an undecided version is aborted after this time without progress */
    uint32_t restore_wait_ms;    /* recovery waits this long for nodes that were known but do not answer */
    uint32_t session_wait_ms;    /* attach, register and restore wait this long for nodes that do not answer */
    uint32_t max_restore_tries;  /* restores of one version without a commit afterwards; then an older one is used */
    uint32_t copy_threads;       /* of the client; 0: derived from its processors */
    enum digest_place digest;    /* where digests of records on a device are computed first; the agent computes them in
                                    any case */
    enum on_node_loss on_node_loss;
    enum restore_spread restore_spread; /* who passes shards on to data-parallel twins after a recovery */
    uint32_t restore_spread_timeout_ms;
    enum storage_format storage_format;   /* used by adapters of frameworks alone */
    enum switch_state storage_verify;     /* a drain reads back what it wrote before it is published */
    uint32_t storage_clone;               /* of so many versions one is written as a whole; 0 and 1: all are */
    enum switch_state memory_pressure;    /* slots are given back when memory is short */
    uint32_t scrub_interval_s;            /* each slot's digests are checked once in this time; 0: never */
    uint32_t scrub_storage_interval_s;    /* and this node's files of one published version; 0: never */
    char run_id[CONFIG_RUN];              /* of the launcher: the same in a relaunch; "": unknown */
    enum switch_state accept_fresh_start; /* if all saved versions are lost */
    enum switch_state show_progress;      /* of register and restore */
    enum switch_state takeover;           /* begin although trainers of another run are alive */
    uint32_t log_level;                   /* 0 error .. 3 debug */
};

/* Defaults, then the file (may be NULL), then the text (may be NULL), then checks of impossible combinations. An
 * unknown key, a wrong type or an impossible value is one TCK_ERR_CONFIG that names key and reason. Out is complete:
 * derived defaults (node, runtime_dir, ...) are filled in. Relative paths in the file start at its directory, those
 * in the text and in the environment at the working directory; path_absolute says which are refused. */
must_check tck_status_t config_load(const char *file, const char *text, struct config *out, struct error *err);

/* The same without a file and a text: the configuration of a job that sets no key. Its save_dir is empty. */
must_check tck_status_t config_defaults(struct config *out, struct error *err);

/* The place beside save_dir in which versions are searched for, and the key that names it: archive_dir or load_dir, of
 * which only one can be set. "": none. */
const char *config_second_dir(const struct config *config);
const char *config_second_key(const struct config *config);

/* The code point of traffic_class; 0: the system's. */
uint32_t config_dscp(const struct config *config);

/* The effective configuration as a JSON object (config_load reads it back to the same). Caller frees. */
json_t *config_json(const struct config *config);

/* Sets one field of a loaded configuration from text as a user types it ("30s", "20"), with the same checks. Only
 * fields marked changeable while running (the intervals, max_ckpt_num, on_node_loss). Nothing else is written: other
 * threads may read the other members meanwhile. */
must_check tck_status_t config_change(struct config *config, const char *key, const char *value, struct error *err);

/* The table, for printing: i from 0 until false. */
struct config_help {
    const char *name, *default_text, *help;
    char takes[160]; /* which values: "a path", "2 to 3", "report, end_trainers" */
    bool changeable;
};
bool config_field(size_t i, struct config_help *out);

/* Whether a running job may change it. False also for an unknown key. */
bool config_is_changeable(const char *key);

#endif
