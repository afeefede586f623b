/* SPDX-License-Identifier: Apache-2.0
 * Signatures equal those that AWS has published in the examples of its documentation of Signature Version 4 for S3. */
#include "tiers/object/s3_sign.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define NOW        1369353600 /* 24 May 2013, 00:00:00 */

static const struct s3_keys keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

static void expect(const struct s3_to_sign *request, const char *signed_names, const char *signature)
{
    char out[S3_AUTHORIZATION_BYTES], want[S3_AUTHORIZATION_BYTES];
    struct error err;
    cr_assert_eq(s3_sign(request, keys, out, &err), TCK_OK);
    snprintf(want, sizeof(want),
             "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
             "SignedHeaders=%s,Signature=%s",
             signed_names, signature);
    cr_assert_str_eq(out, want);
}

/* Not in the order in which they are signed. */
#define COMMON(hash)                                                                \
    {"x-amz-date", "20130524T000000Z"}, {"host", "examplebucket.s3.amazonaws.com"}, \
    {                                                                               \
        "x-amz-content-sha256", hash                                                \
    }
#define REQUEST(verb, where, asked, hash)                                                                  \
    {                                                                                                      \
        .method = (verb), .path = (where), .query = (asked), .headers = headers,                           \
        .header_count = sizeof(headers) / sizeof(*headers), .payload_hash = (hash), .region = "us-east-1", \
        .service = "s3", .now = NOW                                                                        \
    }

Test(s3_sign, get_object)
{
    const struct s3_header headers[] = {COMMON(EMPTY_HASH), {"range", "bytes=0-9"}};
    const struct s3_to_sign request = REQUEST("GET", "/test.txt", "", EMPTY_HASH);
    expect(&request, "host;range;x-amz-content-sha256;x-amz-date",
           "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

Test(s3_sign, put_object_with_a_key_that_is_encoded)
{
    char hash[S3_PAYLOAD_HASH_BYTES], path[64] = "";
    s3_payload_hash("Welcome to Amazon S3.", 21, hash);
    cr_assert_str_eq(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    cr_assert(s3_encode("/test$file.text", true, path, sizeof(path)));
    const struct s3_header headers[] = {
        COMMON(hash), {"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"date", "Fri, 24 May 2013 00:00:00 GMT"}};
    const struct s3_to_sign request = REQUEST("PUT", path, "", hash);
    expect(&request, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
           "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

Test(s3_sign, get_bucket_lifecycle)
{
    const struct s3_header headers[] = {COMMON(EMPTY_HASH)};
    const struct s3_to_sign request = REQUEST("GET", "/", "lifecycle=", EMPTY_HASH);
    expect(&request, "host;x-amz-content-sha256;x-amz-date",
           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

Test(s3_sign, list_objects)
{
    const struct s3_header headers[] = {COMMON(EMPTY_HASH)};
    const struct s3_to_sign request = REQUEST("GET", "/", "max-keys=2&prefix=J", EMPTY_HASH);
    expect(&request, "host;x-amz-content-sha256;x-amz-date",
           "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

Test(s3_sign, white_space_in_a_value_does_not_change_the_signature)
{
    const struct s3_header headers[] = {COMMON(EMPTY_HASH), {"range", "  bytes=0-9 "}};
    const struct s3_to_sign request = REQUEST("GET", "/test.txt", "", EMPTY_HASH);
    expect(&request, "host;range;x-amz-content-sha256;x-amz-date",
           "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

Test(s3_sign, what_does_not_fit_is_refused)
{
    char out[S3_AUTHORIZATION_BYTES], small[4] = "", long_key[300];
    struct error err;
    const struct s3_header headers[S3_SIGNED_HEADERS_MAX + 1] = {{"a", "b"}};
    const struct s3_to_sign many = REQUEST("GET", "/", "", EMPTY_HASH);
    cr_assert_eq(s3_sign(&many, keys, out, &err), TCK_ERR_INVAL);
    struct s3_to_sign one = many;
    one.header_count = 1;
    memset(long_key, 'k', sizeof(long_key));
    long_key[sizeof(long_key) - 1] = '\0';
    cr_assert_eq(s3_sign(&one, (struct s3_keys){"id", long_key}, out, &err), TCK_ERR_INVAL);
    cr_assert_not(s3_encode("a b", false, small, sizeof(small)));
}

Test(s3_sign, encoding_leaves_what_aws_leaves)
{
    char out[64] = "x";
    cr_assert(s3_encode("a-_.~/ +\xc3\xa4", false, out, sizeof(out)));
    cr_assert_str_eq(out, "xa-_.~%2F%20%2B%C3%A4");
}
