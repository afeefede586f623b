/* SPDX-License-Identifier: Apache-2.0
 * Included before everything else by the few files that stand for a build with other format numbers. */
#if defined(OTHER_MESSAGE_FORMAT)
#include "base/message.h"
#undef MESSAGE_FORMAT
#define MESSAGE_FORMAT OTHER_MESSAGE_FORMAT
#elif defined(OTHER_PEER_FORMAT)
#include "tiers/peer_wire.h"
#undef PEER_FORMAT
#define PEER_FORMAT OTHER_PEER_FORMAT
#else
#include "tiers/slot_header.h"
#undef SLOT_FORMAT
#define SLOT_FORMAT OTHER_SLOT_FORMAT
#endif
