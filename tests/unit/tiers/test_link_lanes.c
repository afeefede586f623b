/* SPDX-License-Identifier: Apache-2.0
 * The transports that UCX prints of a connection. */
#include "tiers/link_lanes.h"

#include <criterion/criterion.h>

#define CAP 128

/* UCX 1.13 over TCP. */
static const char tcp[] =
    "#\n# UCP endpoint 0x7f2a\n#\n#               peer: <no debug data>\n"
    "#                 lane[0]: cm rdmacm\n"
    "#                 lane[1]:  0:tcp/eth0.0 md[0]      -> md[0]/tcp/sysdev[255] rma_bw#0 am am_bw#0\n"
    "#\n#                tag_send: 0..<egr/short>..8184..<egr/bcopy>..(inf)\n#\n";
/* The same over InfiniBand. */
static const char ib[] =
    "#                 lane[0]:  5:rc_mlx5/mlx5_0:1.0 md[4]  -> addr[5].md[4]/ib/sysdev[1] rma_bw#0 am\n"
    "#                 lane[1]:  5:rc_mlx5/mlx5_0:1.1 md[4]  -> addr[5].md[4]/ib/sysdev[1] rma_bw#1\n"
    "#                 lane[2]: 12:tcp/ib0.100.0 md[0]       -> addr[1].md[0]/tcp/sysdev[255] wireup\n";

Test(link_lanes, names_transport_and_device)
{
    char out[CAP];
    link_lanes(tcp, out, sizeof(out));
    cr_expect_str_eq(out, "tcp/eth0");
}

Test(link_lanes, names_each_once_in_their_order_and_keeps_dots_in_names)
{
    char out[CAP];
    link_lanes(ib, out, sizeof(out));
    cr_expect_str_eq(out, "rc_mlx5/mlx5_0:1 tcp/ib0.100");
}

Test(link_lanes, leaves_out_what_does_not_fit)
{
    char out[20];
    link_lanes(ib, out, sizeof(out));
    cr_expect_str_eq(out, "rc_mlx5/mlx5_0:1");
}

Test(link_lanes, names_nothing_if_there_are_no_lanes)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "lane[",
                                        "lane[0]",
                                        "lane[0]:",
                                        "lane[0]: 5",
                                        "lane[0]:  5:",
                                        "lane[0]:  5:tcp",
                                        "lane 0: 5:tcp/eth0",
                                        "#   lane[0]: cm tcp\n# tag_send: 0..8184"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char out[CAP] = "before";
        link_lanes(texts[i], out, sizeof(out));
        cr_expect_str_eq(out, "", "%s", texts[i]);
    }
}

Test(link_lanes, takes_any_part_of_a_text)
{
    for (size_t from = 0; from < sizeof(ib); from++) {
        char out[CAP];
        link_lanes(ib + from, out, sizeof(out));
        cr_expect(out[0] == '\0' || strchr(out, '/') != NULL);
    }
}
