/* SPDX-License-Identifier: Apache-2.0
 * Whether another start has taken the job over: then this trainer can save nothing any more, and must not try to get
 * the job back. */
#ifndef TCK_CLIENT_OVER_H
#define TCK_CLIENT_OVER_H

#include "client/session.h"

/* TCK_OK, or TCK_ERR_DENIED with who holds the job now. Reads the shared status alone. */
must_check tck_status_t session_term_over(const struct session *session, struct error *err);

#endif
