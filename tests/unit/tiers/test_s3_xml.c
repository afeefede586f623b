/* SPDX-License-Identifier: Apache-2.0
 * Documents as S3 and STS send them, and what is no such document. */
#include "tiers/object/s3_xml.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct s3_document document;
static struct error err;

static tck_status_t decode(const char *text)
{
    return s3_xml_decode(text, strlen(text), &document, &err);
}

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"

Test(s3_xml, an_error_has_code_and_message)
{
    cr_assert_eq(decode(HEAD "<Error><Code>NoSuchKey</Code><Message>a &amp; b</Message><Key>k</Key>"
                             "<Deep><Code>not this</Code></Deep></Error>"),
                 TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_ERROR);
    cr_assert_str_eq(document.code, "NoSuchKey");
    cr_assert_str_eq(document.message, "a & b");
    s3_document_free(&document);
    cr_assert_eq(decode("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>"
                        "<Code>ExpiredTokenException</Code></Error><RequestId>1</RequestId></ErrorResponse>"),
                 TCK_OK);
    cr_assert_str_eq(document.code, "ExpiredTokenException");
    s3_document_free(&document);
}

static bool goes_on(const char *text)
{
    cr_assert_eq(decode(text), TCK_OK);
    bool more = s3_document_truncated(&document);
    s3_document_free(&document);
    return more;
}

Test(s3_xml, a_page_that_says_where_the_next_one_begins_is_not_the_last_one)
{
    cr_assert(goes_on("<ListBucketResult><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"));
    cr_assert(goes_on("<ListMultipartUploadsResult><NextKeyMarker>k</NextKeyMarker></ListMultipartUploadsResult>"));
    cr_assert_not(goes_on("<ListMultipartUploadsResult><NextKeyMarker/></ListMultipartUploadsResult>"));
    cr_assert_not(goes_on("<ListBucketResult><IsTruncated>false</IsTruncated>"
                          "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"));
    cr_assert_not(goes_on("<ListBucketResult/>"));
}

Test(s3_xml, a_listing_has_keys_folders_and_a_token)
{
    cr_assert_eq(decode(HEAD
                        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
                        "<Prefix>p/</Prefix><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
                        "<NextContinuationToken>a+b%2F=</NextContinuationToken>"
                        "<Contents><Key>p/a%2Bb+c</Key><Size>12345678901</Size><Owner><ID>x</ID></Owner></Contents>"
                        "<CommonPrefixes><Prefix>p/d/</Prefix></CommonPrefixes></ListBucketResult>"),
                 TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_LIST);
    cr_assert(s3_document_truncated(&document));
    cr_assert_str_eq(document.next_token, "a+b%2F=");
    cr_assert_eq(document.count, 2);
    cr_assert_str_eq(document.entries[0].key, "p/a+b c");
    cr_assert_eq(document.entries[0].bytes, 12345678901);
    cr_assert_str_eq(document.entries[1].key, "p/d/");
    cr_assert(document.entries[1].folder);
    s3_document_free(&document);
}

Test(s3_xml, keys_that_were_not_encoded_stay)
{
    cr_assert_eq(decode("<ListBucketResult><Contents><Key>a%2Bb+c</Key><Size>1</Size></Contents></ListBucketResult>"),
                 TCK_OK);
    cr_assert_str_eq(document.entries[0].key, "a%2Bb+c");
    cr_assert_not(s3_document_truncated(&document));
    s3_document_free(&document);
}

Test(s3_xml, uploads_have_keys_ids_and_two_markers)
{
    cr_assert_eq(
        decode("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
               "<NextUploadIdMarker>u2</NextUploadIdMarker><Upload><Key>k</Key><UploadId>u1</UploadId></Upload>"
               "<Upload><Key>k</Key><UploadId>u2</UploadId></Upload></ListMultipartUploadsResult>"),
        TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_UPLOADS);
    cr_assert_eq(document.count, 2);
    cr_assert_str_eq(document.entries[1].upload_id, "u2");
    cr_assert_str_eq(document.next_key, "k");
    cr_assert_str_eq(document.next_upload_id, "u2");
    s3_document_free(&document);
}

Test(s3_xml, an_upload_that_was_begun_has_an_id_under_both_names)
{
    cr_assert_eq(decode("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"),
                 TCK_OK);
    cr_assert_str_eq(document.upload_id, "u");
    s3_document_free(&document);
    cr_assert_eq(decode("<InitiateMultipartUpload><UploadId>u</UploadId></InitiateMultipartUpload>"), TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_INITIATED);
    cr_assert_str_eq(document.upload_id, "u");
    s3_document_free(&document);
}

Test(s3_xml, a_role_has_credentials)
{
    cr_assert_eq(decode("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                        "<SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey><Expiration>"
                        "2030-01-02T03:04:05Z</Expiration><AccessKeyId>a</AccessKeyId></Credentials>"
                        "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"),
                 TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_ROLE);
    cr_assert_str_eq(document.access_key, "a");
    cr_assert_str_eq(document.secret_key, "s");
    cr_assert_str_eq(document.session_token, "t");
    cr_assert_str_eq(document.expiration, "2030-01-02T03:04:05Z");
    s3_document_free(&document);
}

Test(s3_xml, what_is_not_whole_or_not_bounded_is_refused)
{
    cr_assert_eq(decode(""), TCK_ERR_PROTO);
    cr_assert_eq(decode("<html>"), TCK_ERR_PROTO);
    cr_assert_eq(decode("<ListBucketResult><Contents><Key>a</Key>"), TCK_ERR_PROTO);
    cr_assert_eq(decode("<ListBucketResult><Contents><Size>-1</Size></Contents></ListBucketResult>"), TCK_ERR_PROTO);
    cr_assert_eq(decode("<!DOCTYPE a [<!ENTITY b \"c\">]><Error><Code>&b;</Code></Error>"), TCK_ERR_PROTO);
    char *text = malloc(S3_XML_VALUE_MAX + 100);
    strcpy(text, "<Error><Code>");
    memset(text + strlen(text), 'a', S3_XML_VALUE_MAX);
    strcpy(text + 13 + S3_XML_VALUE_MAX, "</Code></Error>");
    cr_assert_eq(decode(text), TCK_ERR_PROTO);
    free(text);
}

Test(s3_xml, another_document_is_none_of_ours)
{
    cr_assert_eq(decode("<html><body>Bad gateway</body></html>"), TCK_OK);
    cr_assert_eq(document.kind, S3_DOC_NONE);
    s3_document_free(&document);
}

Test(s3_xml, escapes_are_written)
{
    char out[32];
    cr_assert(s3_xml_escape("\"a&<b\"", out, sizeof(out)));
    cr_assert_str_eq(out, "&quot;a&amp;&lt;b&quot;");
    cr_assert_not(s3_xml_escape("\"a&<b\"", out, 10));
}
