/* SPDX-License-Identifier: Apache-2.0
 * Keys and values of the catalog. A key is one letter and big-endian numbers, so that rows of one version lie together
 * and versions lie in order; a value begins with its format and repeats what the key says. */
#ifndef TCK_RECOVERY_CATALOG_CODEC_H
#define TCK_RECOVERY_CATALOG_CODEC_H

#include "recovery/catalog.h"

#define CATALOG_KEY_BYTES (1 + CONFIG_NAME)

struct catalog_key {
    size_t len;
    uint8_t bytes[CATALOG_KEY_BYTES];
};

enum catalog_kind { CATALOG_KIND_VERSION = 'v', CATALOG_KIND_SHARD = 's', CATALOG_KIND_NODE = 'n' };

struct catalog_key catalog_kind_key(enum catalog_kind kind); /* begins every key of the kind */
struct catalog_key catalog_version_key(struct version version);
struct catalog_key catalog_shards_key(struct version version); /* begins the key of every shard of the version */
struct catalog_key catalog_shard_key(struct version version, struct hash128 shard);
struct catalog_key catalog_node_key(const char *name);

void catalog_version_encode(const struct catalog_version *m, struct writer *w);
void catalog_shard_encode(const struct catalog_shard *m, struct writer *w);
void catalog_node_encode(const struct known_node *m, struct writer *w);
must_check tck_status_t catalog_node_decode(const void *data, size_t len, struct known_node *out);

#endif
