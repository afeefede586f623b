/* SPDX-License-Identifier: Apache-2.0
 * Known values of HMAC with keys of any length, and of base64. */
#include "base/crypto.h"

#include <criterion/criterion.h>
#include <string.h>

static struct crypto_bytes text(const char *s)
{
    return (struct crypto_bytes){s, strlen(s)};
}

Test(crypto, hmac_has_the_value_of_rfc_4231_for_a_short_key_and_a_long_one)
{
    static const uint8_t start_short[] = {0x5b, 0xdc, 0xc1, 0x46}, start_long[] = {0x60, 0xe4, 0x31, 0x59};
    char long_key[131];
    uint8_t mac[SHA256_BYTES];
    hmac_sha256(text("Jefe"), text("what do ya want "), text("for nothing?"), mac);
    cr_assert_arr_eq(mac, start_short, sizeof(start_short));
    memset(long_key, 0xaa, sizeof(long_key));
    hmac_sha256((struct crypto_bytes){long_key, sizeof(long_key)},
                text("Test Using Larger Than Block-Size Key - Hash Key First"), text(""), mac);
    cr_assert_arr_eq(mac, start_long, sizeof(start_long));
}

Test(crypto, base64_has_the_values_of_rfc_4648)
{
    char out[BASE64_BYTES(6)];
    base64("foobar", 6, out);
    cr_assert_str_eq(out, "Zm9vYmFy");
    base64("foob", 4, out);
    cr_assert_str_eq(out, "Zm9vYg==");
}
