#!/usr/bin/env bash
# A server whose certificate cannot be trusted is one clear error at once, which names the server and what helps. The
# servers are at TLS_UNKNOWN (a CA that is not in AWS_CA_BUNDLE), TLS_EXPIRED and TLS_OTHER_NAME. So is one without TLS,
# at TLS_NONE, if the URL says https.
. "$(dirname "$0")/jobs.sh" "$1"
settings=',"storage_timeout_ms":60000'
prompt_s=20
AWS_ENDPOINT_URL_S3=$TLS_UNKNOWN fails "a certificate of an unknown CA" "$TLS_UNKNOWN.*issued by.*AWS_CA_BUNDLE"
AWS_ENDPOINT_URL_S3=$TLS_EXPIRED fails "a certificate that has expired" "$TLS_EXPIRED.*expired.*[Rr]enew"
AWS_ENDPOINT_URL_S3=$TLS_OTHER_NAME fails "a certificate for another host" "$TLS_OTHER_NAME.*another host.*AWS_ENDPOINT_URL_S3"
AWS_ENDPOINT_URL_S3=$TLS_UNKNOWN AWS_CA_BUNDLE=$work/missing.pem fails "no file of CAs" "$work/missing\.pem.*AWS_CA_BUNDLE has to name"
AWS_ENDPOINT_URL_S3=$TLS_NONE fails "a server without TLS" "$TLS_NONE answers without TLS.*http://"
